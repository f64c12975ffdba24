#include "strake/monitor/scalar_csv.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include "strake/core/file.h"

namespace strake::monitor::scalar_csv_test {
namespace {
namespace fs = std::filesystem;

TEST(ScalarCsv, HasAFileForEachTagAndGoesOnInIt) {
  const fs::path folder = fs::temp_directory_path() / ("strake_scalar_csv_test_" + std::to_string(::getpid()));
  ScalarCsv(folder / "job").write(std::vector<Scalar>{{"Train/Samples/lr", 5e-5}, {"Train/Samples/train_loss", 1}}, 8);
  ScalarCsv(folder / "job").write(std::vector<Scalar>{{"Train/Samples/lr", 0.25}}, 16);
  EXPECT_EQ(read_file(folder / "job" / "Train_Samples_lr.csv", 1000), "step,lr\r\n8,5e-05\r\n16,0.25\r\n");
  EXPECT_EQ(read_file(folder / "job" / "Train_Samples_train_loss.csv", 1000), "step,train_loss\r\n8,1\r\n");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace strake::monitor::scalar_csv_test
