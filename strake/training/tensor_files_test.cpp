#include "strake/training/tensor_files.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <stop_token>
#include <utility>

#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/test_error.h"
#include "strake/training/pending_save.h"

namespace strake::training::tensor_files_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "model.safetensors";

class SavedTensors : public testing::Test {
 protected:
  SavedTensors() { fs::create_directories(folder_); }
  ~SavedTensors() override { fs::remove_all(folder_); }

  // Two tensors, the second transposed, which then become others.
  static void write_two(TensorFiles& files) {
    at::Tensor first = at::arange(12).to(at::kFloat);
    at::Tensor second = at::arange(6).to(at::kBFloat16).view({2, 3}).t();
    files.begin(kName, {{"first", at::kFloat, {12}}, {"second", at::kBFloat16, {3, 2}}}, {{"format", "pt"}});
    files.write(first);
    files.write(second);
    files.end();
    first.fill_(7);
    second.fill_(7);
  }

  fs::path folder_ = fs::temp_directory_path() / fmt::format("strake_tensor_files_test_{}", ::getpid());
};

TEST_F(SavedTensors, AreThoseOfTheTimeWhenTheyWereCopied) {
  const fs::path at_once = folder_ / "at_once";
  const fs::path later = folder_ / "later";
  fs::create_directories(at_once);
  fs::create_directories(later);
  TensorFiles now(at_once, TensorFiles::Write::kNow);
  write_two(now);
  TensorFiles copies(later, TensorFiles::Write::kLater);
  write_two(copies);
  EXPECT_FALSE(now.is_in_memory());
  EXPECT_TRUE(copies.is_in_memory());
  EXPECT_TRUE(fs::is_empty(later));
  EXPECT_TRUE(copies.sums().empty());
  copies.write_all();
  EXPECT_EQ(read_file(later / kName, 1 << 20), read_file(at_once / kName, 1 << 20));
  ASSERT_EQ(copies.sums().size(), 1U);
  EXPECT_EQ(copies.sums().at(kName).crc, now.sums().at(kName).crc);
  EXPECT_EQ(copies.sums().at(kName).bytes, fs::file_size(later / kName));
}

TEST_F(SavedTensors, AreWrittenByAThread) {
  TensorFiles files(folder_, TensorFiles::Write::kLater);
  write_two(files);
  PendingSave save(std::move(files), nullptr, std::nullopt);
  EXPECT_EQ(save.finish().count(kName), 1U);
  EXPECT_TRUE(save.is_over());
  EXPECT_TRUE(fs::exists(folder_ / kName));
}

TEST_F(SavedTensors, AreGivenUpByTheOneWhoGoes) {
  TensorFiles files(folder_, TensorFiles::Write::kLater);
  write_two(files);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(files.write_all(stop.get_token()), Error);
  EXPECT_TRUE(files.sums().empty());
  EXPECT_FALSE(fs::exists(folder_ / kName));
  std::exchange(files, TensorFiles(folder_, TensorFiles::Write::kLater));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(SavedTensors, ThatCannotBeWrittenAreAnErrorOfTheOneWhoFinishes) {
  TensorFiles files(folder_ / "missing", TensorFiles::Write::kLater);
  write_two(files);
  PendingSave save(std::move(files), nullptr, std::nullopt);
  EXPECT_TRUE(
      error_of([&] { save.finish(); }).says(ErrorKind::kIo, "missing/model.safetensors: No such file or directory"));
  EXPECT_TRUE(save.is_over());
}

TEST_F(SavedTensors, WaitForNobodyWhereTheyWereWrittenAtOnce) {
  TensorFiles files(folder_, TensorFiles::Write::kNow);
  write_two(files);
  PendingSave save(std::move(files), nullptr, std::nullopt);
  EXPECT_TRUE(save.is_over());
  EXPECT_EQ(save.finish().count(kName), 1U);
}

}  // namespace
}  // namespace strake::training::tensor_files_test
