#include <dlfcn.h>
#include <fcntl.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "strake/cli/bus_error.h"
#include "strake/cli/verbs.h"
#include "strake/core/error.h"
#include "strake/core/nearest_name.h"
#include "strake/core/version.h"
#include "strake/tasks/launched_ranks.h"
#include "strake/tensors/foreign_error.h"

namespace {

using strake::cli::Verb;

void print_help(std::ostream& out) {
  out << "strake fine-tunes Hugging Face encoders, scores text with them and trains GPT-2 language models.\n\n"
         "Usage: strake VERB [--flag value ...]      strake VERB --help      strake --version\n\nVerbs:\n";
  for (const Verb& verb : strake::cli::verbs()) {
    out << fmt::format("  {:<10} {}\n", verb.text.name, verb.text.summary);
  }
  out << "\nExit codes: 0 done, 2 flags or configuration, 3 data, 4 file, 5 communication, 6 numeric, 70 a bug in "
         "strake, 75 ended by SIGTERM with a checkpoint saved.\n\n"
         "Environment:\n"
         "  STRAKE_NUM_THREADS    threads of a rank; if it is not set, ranks share the cores that they may use, as "
         "taskset,\n"
         "                        batch systems and containers limit them. OMP_NUM_THREADS and OMP_PROC_BIND are not "
         "read\n"
         "  STRAKE_ISA            the highest instructions to use: reference, avx2, avx512, avx512_vnni, avx512_bf16, "
         "amx\n"
         "  STRAKE_MATMUL         matrix products of training: strake, onednn or aten\n"
         "  STRAKE_START_SECONDS  how long processes wait for others that a launcher starts late\n"
         "  STRAKE_SHARED_MEMORY  0: processes of a machine have no parameters in common, as on several machines\n"
         "  STRAKE_CUDA_LIBRARY   strake's kernels for GPUs, if they are not beside the program\n"
         "  TENSORBOARD_LOGGING_DIR  where --report_to tensorboard writes, if --logging_dir is not given\n";
}

// DeepSpeed's launcher puts what its environment says before the verb.
std::vector<std::string> without_local_rank(std::vector<std::string> arguments) {
  const char* const rank = std::getenv("LOCAL_RANK");
  const bool is_told = rank != nullptr && !arguments.empty() && arguments[0] == std::string("--local_rank=") + rank;
  if (is_told) arguments.erase(arguments.begin());
  return arguments;
}

void run(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    print_help(arguments.empty() ? std::cerr : std::cout);
    strake::require(!arguments.empty(), strake::ErrorKind::kUsage, "a verb is missing");
    return;
  }
  if (arguments[0] == "--version") {
    std::cout << fmt::format("strake {}\n", strake::version());
    return;
  }
  std::vector<std::string> names;
  for (const Verb& verb : strake::cli::verbs()) {
    names.push_back(verb.text.name);
    if (verb.text.name != arguments[0]) continue;
    verb.run(verb.text, {arguments.begin() + 1, arguments.end()});
    return;
  }
  strake::fail(strake::ErrorKind::kUsage, "unknown verb '{}'{}", strake::printable(arguments[0]),
               strake::did_you_mean(arguments[0], names));
}

bool ignores_hangup = false;
sigset_t blocked_signals;

// OpenMP would bind the threads of every rank to the same core, and those that are not OpenMP's to the first.
void drop_bindings_of_openmp(char** environment) {
  constexpr std::string_view kBindings[] = {"OMP_PROC_BIND=", "OMP_PLACES=", "GOMP_CPU_AFFINITY="};
  const auto binds = [&](std::string_view variable) {
    return std::ranges::any_of(kBindings, [&](std::string_view name) { return variable.starts_with(name); });
  };
  char** kept = environment;
  for (char** variable = environment; *variable != nullptr; ++variable) {
    if (!binds(*variable)) *kept++ = *variable;
  }
  *kept = nullptr;
}

// UCX, which MPI libraries bring along, takes the signal when it is loaded, so that a program would outlive its
// terminal: it is held back until `main` has taken it from there. OpenMP reads its variables when it is loaded.
void before_libraries(int /*argc*/, char** /*argv*/, char** environment) {
  struct sigaction action{};
  ignores_hangup = ::sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
  sigset_t hangup;
  ::sigemptyset(&hangup);
  ::sigaddset(&hangup, SIGHUP);
  ::sigprocmask(SIG_BLOCK, &hangup, &blocked_signals);
  drop_bindings_of_openmp(environment);
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const kBeforeLibraries)(int, char**, char**) = before_libraries;

// A file that is opened must not become standard input, output or error because the caller closed those: what is logged
// would be written into it. Reading or writing them fails as before.
void occupy_closed_streams() {
  constexpr int kModes[] = {O_WRONLY, O_RDONLY, O_RDONLY};
  for (int stream = 0; stream < 3; ++stream) {
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", kModes[stream]);  // takes the lowest number that is free
  }
}

int exit_code_of_run(const std::vector<std::string>& arguments) {
  try {
    run(arguments);
    std::cout.flush();
    strake::require(std::cout.good(), strake::ErrorKind::kIo,
                    "cannot write to standard output: results are incomplete");
    return 0;
  } catch (const strake::tasks::ToldError& error) {
    return strake::exit_code(error.kind());
  } catch (...) {
    const strake::Error error = strake::tensors::as_error(std::current_exception());
    std::cerr << strake::error_line(error.kind(), error.what());
    return strake::exit_code(error.kind());
  }
}

// Takes no static objects down: those of libtorch and Arrow have nothing to write, and take an eighth of a second for
// it.
[[noreturn]] void end_program(int code) {
  std::cout.flush();
  std::fflush(nullptr);
  // LeakSanitizer looks for leaks when static objects are taken down.
  if (void* const check = ::dlsym(RTLD_DEFAULT, "__lsan_do_leak_check")) reinterpret_cast<void (*)()>(check)();
  std::_Exit(code);
}

}  // namespace

int main(int argc, char** argv) {
  occupy_closed_streams();
  std::signal(SIGHUP, ignores_hangup ? SIG_IGN : SIG_DFL);  // nohup asks to ignore it
  ::sigprocmask(SIG_SETMASK, &blocked_signals, nullptr);
  strake::cli::name_files_that_are_cut();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow any more is an error with a message
  end_program(exit_code_of_run(without_local_rank({argv + 1, argv + argc})));
}
