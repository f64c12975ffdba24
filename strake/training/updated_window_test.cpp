#include "strake/training/updated_window.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

namespace strake::training::updated_window_test {
namespace {

UpdatedWindow window_in_bf16() {
  return {.parameters = at::arange(8).to(at::kFloat),
          .gradients = at::full({8}, 2).to(at::kBFloat16),
          .rounded = at::full({8}, 3).to(at::kBFloat16),
          .states = {at::full({8}, 4).to(at::kFloat)},
          .begin = 16384};
}

TEST(UpdatedWindow, IsWhatKernelsTake) {
  const UpdatedWindow window = window_in_bf16();
  const kernels::FlatWindow flat = flat_window(window, {});
  EXPECT_EQ(std::get<float*>(flat.parameters), window.parameters.const_data_ptr<float>());
  EXPECT_EQ(std::get<kernels::BFloat16*>(flat.gradients), window.gradients.const_data_ptr());
  EXPECT_EQ(std::get<kernels::BFloat16*>(flat.rounded), window.rounded.const_data_ptr());
  EXPECT_EQ(std::get<float*>(flat.states[0]), window.states[0].const_data_ptr<float>());
  EXPECT_EQ(std::get<float*>(flat.states[1]), nullptr);
  EXPECT_EQ(flat.begin, 16384);
  EXPECT_EQ(flat.count, 8);
}

TEST(UpdatedWindow, LeavesRoundedOutWhereParametersAreTheirOwnMasters) {
  UpdatedWindow window = window_in_bf16();
  window.rounded = at::Tensor();
  EXPECT_TRUE(std::holds_alternative<std::monostate>(flat_window(window, {}).rounded));
}

// The processor stands for the device: what lies on it is copied.
TEST(UpdatedWindow, IsUpdatedInACopyAndCopiedBack) {
  const UpdatedWindow window = window_in_bf16();
  const UpdatedWindow host = copy_to_host(window, at::kCPU, HostMemory::kPaged);
  EXPECT_TRUE(host.parameters.equal(window.parameters));
  EXPECT_TRUE(host.gradients.equal(window.gradients));
  EXPECT_TRUE(host.rounded.equal(window.rounded)) << "an update leaves parts of it";
  EXPECT_TRUE(host.states[0].is_same(window.states[0]));
  host.parameters.fill_(7);
  host.rounded.fill_(8);
  EXPECT_EQ(window.parameters[5].item<float>(), 5);
  copy_back(host, window);
  EXPECT_EQ(window.parameters[5].item<float>(), 7);
  EXPECT_EQ(window.rounded[5].item<float>(), 8);
}

TEST(UpdatedWindow, IsCopiedToTheDeviceThatHasTheStates) {
  const UpdatedWindow window = window_in_bf16();
  const UpdatedWindow here = copy_to_device(window, at::kCPU);
  EXPECT_TRUE(here.states[0].is_same(window.states[0]));
  here.parameters.fill_(7);
  here.rounded.fill_(8);
  EXPECT_EQ(window.rounded[5].item<float>(), 3);
  copy_back(here, window);
  EXPECT_EQ(window.parameters[5].item<float>(), 7);
  EXPECT_EQ(window.rounded[5].item<float>(), 8);
}

TEST(UpdatedWindow, IsTakenAsItIsWhereTheHostHasIt) {
  const UpdatedWindow window = window_in_bf16();
  const UpdatedWindow host = copy_to_host(window, at::Device(at::kCUDA, 0), HostMemory::kPaged);
  EXPECT_TRUE(host.parameters.is_same(window.parameters));
  EXPECT_TRUE(host.gradients.is_same(window.gradients));
  EXPECT_TRUE(host.rounded.is_same(window.rounded));
  copy_back(host, window);
}

}  // namespace
}  // namespace strake::training::updated_window_test
