#include "strake/tensors/foreign_error.h"

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <new>
#include <stdexcept>
#include <system_error>

namespace strake::tensors::foreign_error_test {
namespace {

using testing::HasSubstr;

Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (...) {
    return as_error(std::current_exception());
  }
  return {ErrorKind::kInternal, "no error"};
}

TEST(ForeignError, OursIsItself) {
  const Error error = error_of([] { fail(ErrorKind::kData, "row 7"); });
  EXPECT_EQ(error.kind(), ErrorKind::kData);
  EXPECT_STREQ(error.what(), "row 7");
}

TEST(ForeignError, MemoryThatIsNotThereWasAskedForBySettings) {
  const std::vector<std::function<void()>> actions{
      [] { throw std::bad_alloc(); }, [] { at::empty({int64_t{1} << 60}); },
      [] { TORCH_CHECK(false, "CUDA error: out of memory\nCUDA kernel errors might be reported later"); },
      [] { TORCH_CHECK(false, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"); },
      [] { TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 2.00 GiB"); }};
  for (const auto& action : actions) {
    const Error error = error_of(action);
    EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("there is not enough memory"));
    EXPECT_THAT(error.what(), HasSubstr("--gradient_checkpointing"));
  }
  EXPECT_THAT(error_of(actions.back()).what(), HasSubstr("(CUDA out of memory. Tried to allocate 2.00 GiB"));
}

TEST(ForeignError, ThreadsThatAreNotGivenAreALimitOfTheSystem) {
  const Error threads = error_of([] { throw std::system_error(EAGAIN, std::generic_category()); });
  EXPECT_EQ(threads.kind(), ErrorKind::kUsage);
  EXPECT_THAT(threads.what(), HasSubstr("ulimit -u"));
  EXPECT_EQ(error_of([] { throw std::system_error(EINVAL, std::generic_category()); }).kind(), ErrorKind::kInternal);
}

TEST(ForeignError, FilesAndTheRest) {
  const Error file = error_of([] { const std::filesystem::directory_iterator all("/no/such/folder"); });
  EXPECT_EQ(file.kind(), ErrorKind::kIo);
  EXPECT_THAT(file.what(), HasSubstr("/no/such/folder"));
  EXPECT_EQ(error_of([] { throw std::out_of_range("map::at"); }).kind(), ErrorKind::kInternal);
  EXPECT_EQ(error_of([] { throw 7; }).kind(), ErrorKind::kInternal);
}

}  // namespace
}  // namespace strake::tensors::foreign_error_test
