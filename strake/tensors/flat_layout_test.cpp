#include "strake/tensors/flat_layout.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "strake/core/error.h"

namespace strake::tensors::flat_layout_test {
namespace {

TEST(FlatLayout, ViewsAreAlignedDisjointWindowsOfTheBuffer) {
  FlatLayout layout;
  layout.add("a", {3, 5});
  layout.add("b", {7});
  layout.add("scalar", {});
  EXPECT_EQ(layout.numel(), 96);
  const at::Tensor flat = at::zeros({layout.numel()});
  for (const auto& entry : layout.entries()) {
    at::Tensor view = FlatLayout::view(flat, entry);
    EXPECT_EQ(view.sizes(), at::IntArrayRef(entry.shape));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data_ptr()) % 64, 0U);
    view.add_(1);
  }
  EXPECT_EQ(flat.sum().item<float>(), 15 + 7 + 1);
  EXPECT_THROW(layout.add("a", {1}), Error);
}

TEST(ShardLayout, CutsCoverTheBufferOnAlignedBoundaries) {
  for (const int64_t numel : {0, 32, 16384, 16416, 1000000}) {
    for (const int shards : {1, 2, 3, 7}) {
      const ShardLayout layout(numel, shards);
      int64_t next = 0;
      for (int shard = 0; shard < shards; ++shard) {
        EXPECT_EQ(layout.begin(shard), next);
        EXPECT_TRUE(next % ShardLayout::kAlignment == 0 || next == numel);
        next = layout.end(shard);
      }
      EXPECT_EQ(next, numel);
    }
  }
}

}  // namespace
}  // namespace strake::tensors::flat_layout_test
