#include "strake/data/status_arrow.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "strake/core/test_error.h"

namespace strake::data::status_arrow_test {
namespace {

Caught told(const arrow::Status& status) {
  return error_of([&] { require_ok(status, "a.parquet"); });
}

TEST(Status, MemoryThatTheSystemDoesNotGiveIsNoFaultOfTheData) {
  EXPECT_TRUE(told(arrow::Status::OutOfMemory("malloc of size 448 failed"))
                  .says(ErrorKind::kUsage, "a.parquet: there is not enough memory (malloc of size 448 failed)"));
  EXPECT_TRUE(told(arrow::Status::OutOfMemory("MemoryPool bytes_allocated cap exceeded: limit=1"))
                  .says(ErrorKind::kData, "a.parquet: MemoryPool"))
      << "a damaged file asks for any amount";
  EXPECT_TRUE(told(arrow::Status::IOError("page is damaged")).says(ErrorKind::kData, "page is damaged"));
}

}  // namespace
}  // namespace strake::data::status_arrow_test
