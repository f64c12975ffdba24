#include "strake/scoring/prediction_journal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strake/core/error.h"
#include "strake/core/test_error.h"

namespace strake::scoring::prediction_journal_test {
namespace {
namespace fs = std::filesystem;

class PredictionJournalTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("journal-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    path_ = folder_ / "logits.journal";
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Records of 1, 2, 3, ... rows of three numbers each: 0, 1, 2, ...
  void write_records(int64_t count) {
    PredictionJournal journal(path_, 3);
    for (int64_t rows = 1; rows <= count; ++rows) append(journal, rows, 10 * rows);
  }
  static void append(PredictionJournal& journal, int64_t rows, int64_t tokens) {
    const std::vector<float> values = numbers(journal.rows() * 3, rows * 3);
    journal.append({.texts = texts(journal.rows(), rows), .numbers = values, .tokens = tokens});
  }
  // Checksums of rows first, first + 1, ...
  static std::vector<uint32_t> texts(int64_t first, int64_t count) {
    std::vector<uint32_t> checksums(static_cast<size_t>(count));
    std::iota(checksums.begin(), checksums.end(), 7 * static_cast<uint32_t>(first));
    return checksums;
  }
  static std::vector<float> numbers(int64_t first, int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    std::iota(values.begin(), values.end(), static_cast<float>(first));
    return values;
  }
  std::string content() const {
    std::ifstream stream(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  void overwrite(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  fs::path folder_, path_;
};

TEST_F(PredictionJournalTest, WhatWasAppendedIsFoundInAnyPieces) {
  write_records(4);
  for (const int64_t rows_at_once : {1, 3, 7, 10}) {
    PredictionJournal journal(path_, 3);
    ASSERT_EQ(journal.rows_found(), 10);
    EXPECT_EQ(journal.tokens_found(), 100);
    std::vector<float> read;
    for (int64_t left = 10; left > 0; left -= rows_at_once) {
      std::vector<float> part(static_cast<size_t>(std::min(left, rows_at_once) * 3));
      journal.read(part);
      read.insert(read.end(), part.begin(), part.end());
    }
    EXPECT_EQ(read, numbers(0, 30));
    std::vector<float> more(3);
    EXPECT_THROW(journal.read(more), Error);
  }
}

TEST_F(PredictionJournalTest, AFileCutAnywhereHasTheRecordsBeforeTheCutAndGoesOn) {
  write_records(4);
  const std::string whole = content();
  const std::vector<size_t> ends = {16, 16 + 52, 16 + 52 + 64, 16 + 52 + 64 + 76, whole.size()};
  ASSERT_EQ(ends.back(), 16 + 52 + 64 + 76 + 88);
  const std::vector<int64_t> rows_before = {0, 1, 3, 6, 10};
  for (size_t size = 0; size < whole.size(); ++size) {
    overwrite(whole.substr(0, size));
    size_t records = 0;
    while (ends[records + 1] <= size) ++records;
    PredictionJournal journal(path_, 3);
    ASSERT_EQ(journal.rows_found(), rows_before[records]) << size;
    if (journal.rows() < 10) append(journal, 10 - journal.rows(), 0);
    std::vector<float> found(static_cast<size_t>(rows_before[records] * 3));
    journal.read(found);
    EXPECT_EQ(found, numbers(0, std::ssize(found)));
    EXPECT_EQ(PredictionJournal(path_, 3).rows_found(), 10) << size;
  }
}

TEST_F(PredictionJournalTest, AChangedBitDropsItsRecordAndThoseBehind) {
  write_records(3);
  const std::string whole = content();
  for (size_t byte = 16; byte < whole.size(); ++byte) {
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 0x10);
    overwrite(damaged);
    const int64_t expected = byte < 16 + 52 ? 0 : byte < 16 + 52 + 64 ? 1 : 3;
    EXPECT_EQ(PredictionJournal(path_, 3).rows_found(), expected) << byte;
  }
}

TEST_F(PredictionJournalTest, AJournalOfAnotherWidthOrOfSomethingElseIsStartedAnew) {
  write_records(2);
  EXPECT_EQ(PredictionJournal(path_, 2).rows_found(), 0);
  EXPECT_EQ(content().size(), 16);
  overwrite(std::string(1000, 'x'));
  EXPECT_EQ(PredictionJournal(path_, 3).rows_found(), 0);
}

TEST_F(PredictionJournalTest, RowsOfAnyWidthAreReadInOrder) {
  const std::vector<float> none;
  const std::vector<float> all = numbers(0, 7);
  {
    PredictionJournal journal(path_, PredictionJournal::kAnyWidth);
    journal.append({.texts = texts(0, 2), .numbers = std::span(all).first(3), .tokens = 5});
    journal.append({.texts = texts(2, 1), .numbers = none, .tokens = 1});
    journal.append({.texts = texts(3, 4), .numbers = std::span(all).subspan(3), .tokens = 9});
    EXPECT_THROW(journal.append({.texts = {}, .numbers = none, .tokens = 1}), Error);
  }
  PredictionJournal journal(path_, PredictionJournal::kAnyWidth);
  EXPECT_EQ(journal.rows_found(), 7);
  EXPECT_EQ(journal.tokens_found(), 15);
  std::vector<float> found(7);
  journal.read(std::span(found).first(2));
  journal.read(std::span(found).subspan(2));
  EXPECT_EQ(found, all);
  EXPECT_EQ(PredictionJournal(path_, 1).rows_found(), 0);
}

TEST_F(PredictionJournalTest, TheRecordWithOtherTextsIsFoundInAnyPieces) {
  write_records(4);
  std::vector<uint32_t> same(10);
  for (int64_t first = 0, rows = 1; rows <= 4; first += rows++) {
    std::ranges::copy(texts(first, rows), same.begin() + first);
  }
  const std::vector<int64_t> first_rows = {0, 1, 3, 6, 10};
  for (const size_t rows_at_once : {1, 3, 4, 10}) {
    for (size_t changed = 0; changed <= same.size(); ++changed) {
      std::vector<uint32_t> given = same;
      if (changed < same.size()) given[changed] += 1;
      PredictionJournal journal(path_, 3);
      std::optional<PredictionJournal::Rows> other;
      for (size_t row = 0; row < given.size() && !other; row += rows_at_once) {
        const size_t count = std::min(rows_at_once, given.size() - row);
        other = journal.find_other_texts(std::span(given).subspan(row, count));
      }
      ASSERT_EQ(other.has_value(), changed < same.size());
      if (!other) continue;
      const auto record = std::ranges::upper_bound(first_rows, static_cast<int64_t>(changed));
      EXPECT_EQ(other->begin, record[-1]);
      EXPECT_EQ(other->end, record[0]);
    }
  }
  PredictionJournal journal(path_, 3);
  EXPECT_FALSE(journal.find_other_texts(same));
  EXPECT_THROW(journal.find_other_texts(same), Error);  // beyond what was found
}

TEST_F(PredictionJournalTest, RefusesRowsOfAnotherWidth) {
  PredictionJournal journal(path_, 3);
  EXPECT_THROW(journal.append({.texts = texts(0, 2), .numbers = numbers(0, 5), .tokens = 1}), Error);
}

TEST_F(PredictionJournalTest, AFileThatCannotBeOpenedIsNamed) {
  EXPECT_TRUE(error_of([&] {
                const PredictionJournal journal(folder_ / "nowhere" / "x", 2);
              }).says(ErrorKind::kIo, "nowhere/x: No such file"));
}

}  // namespace
}  // namespace strake::scoring::prediction_journal_test
