#include "strake/training/device.h"

#include <gtest/gtest.h>

namespace strake::training::device_test {
namespace {

TEST(Device, IsTheProcessorUnlessARankHasAGpu) {
  EXPECT_EQ(device_of({}), at::Device(at::kCPU));
  EXPECT_EQ(device_of({.gpu = 3}), at::Device(at::kCUDA, 3));
}

}  // namespace
}  // namespace strake::training::device_test
