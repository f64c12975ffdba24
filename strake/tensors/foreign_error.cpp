#include "strake/tensors/foreign_error.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

namespace strake::tensors {
namespace {

Error out_of_memory(const std::string& where) {
  return {ErrorKind::kUsage,
          fmt::format("there is not enough memory{}. Smaller batches need less, and training needs less with "
                      "--gradient_checkpointing, --bf16, or --deepspeed with a higher ZeRO stage or offload to nvme",
                      where)};
}

// libtorch's exceptions for the processor's memory, page-locked memory and cuBLAS's are of no kind of their own.
bool tells_of_memory(std::string_view text) {
  constexpr std::array<std::string_view, 3> kWords{"DefaultCPUAllocator: can't allocate memory",
                                                   "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED"};
  return std::ranges::any_of(kWords,
                             [&](std::string_view words) { return text.find(words) != std::string_view::npos; });
}

}  // namespace

Error as_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known;
  } catch (const std::bad_alloc&) {
    return out_of_memory("");
  } catch (const c10::OutOfMemoryError& of_gpu) {
    return out_of_memory(" (" + printable(of_gpu.what_without_backtrace(), 200) + ")");
  } catch (const std::filesystem::filesystem_error& of_file) {
    return {ErrorKind::kIo, of_file.what()};
  } catch (const std::system_error& of_system) {
    if (of_system.code() != std::errc::resource_unavailable_try_again) return {ErrorKind::kInternal, of_system.what()};
    return {ErrorKind::kUsage,
            fmt::format("the system gives this process no more threads ({}): ulimit -u, -v and -d and pids.max of "
                        "containers limit them, STRAKE_NUM_THREADS lowers how many are wanted",
                        of_system.what())};
  } catch (const std::exception& other) {
    return tells_of_memory(other.what()) ? out_of_memory("") : Error(ErrorKind::kInternal, other.what());
  } catch (...) {
    return {ErrorKind::kInternal, "unknown error"};
  }
}

}  // namespace strake::tensors
