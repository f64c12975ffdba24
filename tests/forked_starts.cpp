// Loaded before libc by tests that start the program often: it loads its libraries and makes their static objects once,
// a third of a second, then forks for every request on the socket STRAKE_TEST_STARTS names and calls main() there.
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);

Main program = nullptr;

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "forked_starts: %s (%s)\n", what, std::strerror(errno));
  std::_Exit(127);  // as a shell, where a program cannot be started
}

constexpr size_t kStreams = 3;

// Of one start: its folder, how many arguments it has, these, and its environment; and what its streams are.
struct Request {
  std::vector<std::string> words;
  std::array<int, kStreams> streams{};
};

// False at the end of the tests.
bool receive(int socket, std::vector<char>& text, Request& request) {
  iovec place{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(request.streams))> control{};
  msghdr message{};
  message.msg_iov = &place;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t length = ::recvmsg(socket, &message, 0);
  if (length <= 0) return false;
  const cmsghdr* const streams = CMSG_FIRSTHDR(&message);
  if (streams == nullptr || streams->cmsg_len != CMSG_LEN(sizeof(request.streams))) give_up("a request has no streams");
  std::memcpy(request.streams.data(), CMSG_DATA(streams), sizeof(request.streams));
  request.words.clear();
  for (auto word = text.begin(), end = text.begin() + length; word < end;) {
    const auto stop = std::find(word, end, '\0');
    request.words.emplace_back(word, stop);
    word = stop + (stop < end ? 1 : 0);
  }
  return true;
}

[[noreturn]] void start(int socket, Request& request) {
  ::close(socket);
  for (size_t i = 0; i < kStreams; ++i) {
    if (::dup2(request.streams[i], static_cast<int>(i)) < 0) give_up("cannot place a stream");
    ::close(request.streams[i]);
  }
  if (::chdir(request.words[0].c_str()) != 0) give_up("cannot enter the folder of a request");
  const size_t arguments = std::stoul(request.words[1]);
  std::vector<char*> pointers;
  for (size_t i = 2; i < request.words.size(); ++i) {
    pointers.push_back(request.words[i].data());
    if (i + 1 == 2 + arguments) pointers.push_back(nullptr);
  }
  pointers.push_back(nullptr);
  environ = pointers.data() + arguments + 1;
  std::exit(program(static_cast<int>(arguments), pointers.data(), environ));
}

size_t threads() {
  return static_cast<size_t>(std::ranges::distance(std::filesystem::directory_iterator("/proc/self/task")));
}

// Says that it is ready, by a number, and answers each request with the process's number, and later with its exit
// status as waitpid() gives it.
int serve(int /*argc*/, char** /*argv*/, char** /*environment*/) {
  if (threads() != 1) give_up("a library has started a thread, which a fork would not have");
  const int socket = std::atoi(std::getenv("STRAKE_TEST_STARTS"));
  constexpr int kReady = 0;
  if (::send(socket, &kReady, sizeof(kReady), MSG_NOSIGNAL) < 0) give_up("cannot say that it is ready");
  std::vector<char> text(size_t{1} << 20);
  Request request;
  while (receive(socket, text, request)) {
    const pid_t process = ::fork();
    if (process == 0) start(socket, request);
    for (const int stream : request.streams) ::close(stream);
    int status = 0;
    if (process < 0 || ::send(socket, &process, sizeof(process), MSG_NOSIGNAL) < 0 ||
        ::waitpid(process, &status, 0) != process || ::send(socket, &status, sizeof(status), MSG_NOSIGNAL) < 0) {
      give_up("cannot start a process, or tell of its end");
    }
  }
  std::_Exit(0);
}

}  // namespace

// libc's, which calls `main` when all libraries are loaded.
extern "C" int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(), void (*rtld_fini)(),
                                 void* stack_end) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  const auto of_libc = reinterpret_cast<Start>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  program = main;
  return of_libc(serve, argc, argv, init, fini, rtld_fini, stack_end);
}
