#include "strake/tensors/cuda_libtorch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "strake/core/error.h"

namespace strake::tensors::cuda_libtorch_test {
namespace {

TEST(CudaLibtorch, SaysWhatIsMissingWithoutAGpu) {
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "skipped: there is a GPU";
  try {
    open_cuda_libtorch();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(),
                testing::AnyOf(testing::HasSubstr("has no driver of one"), testing::HasSubstr("pip install torch"),
                               testing::HasSubstr("nvidia-smi")));
  }
}

}  // namespace
}  // namespace strake::tensors::cuda_libtorch_test
