#include "strake/comm/nccl_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strake/core/test_error.h"

namespace strake::comm::nccl_table_test {
namespace {

std::string error_of(const char* path) {
  return strake::error_of([&] { open_nccl(path); }).text;
}

TEST(NcclTable, SaysWhatIsMissing) {
  EXPECT_THAT(error_of("/nowhere/libnccl.so.2"), testing::HasSubstr("pip install nvidia-nccl-cu13"));
  EXPECT_THAT(error_of("libm.so.6"), testing::HasSubstr("lacks ncclGetErrorString"));
}

}  // namespace
}  // namespace strake::comm::nccl_table_test
