#include "strake/kernels/cuda/library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strake/core/test_error.h"

namespace strake::kernels::cuda::library_test {
namespace {

std::string error_of(const std::filesystem::path& path) {
  return strake::error_of([&] { open_library(path); }).with_kind();
}

TEST(CudaLibrary, SaysWhatIsMissing) {
  EXPECT_THAT(error_of("/nowhere/libstrake_cuda.so"),
              testing::AllOf(testing::HasSubstr("/nowhere/libstrake_cuda.so"), testing::HasSubstr("nvcc")));
  EXPECT_THAT(error_of("libm.so.6"), testing::HasSubstr("is no library of strake's GPU kernels"));
}

}  // namespace
}  // namespace strake::kernels::cuda::library_test
