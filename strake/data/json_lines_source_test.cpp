#include <gmock/gmock.h>

#include "strake/data/table_reader.h"
#include "strake/data/test_folder.h"

namespace strake::data::json_lines_source_test {
namespace {
namespace fs = std::filesystem;

class JsonLinesSourceTest : public FolderTest {
 protected:
  static Caught read_error(const TableSource& source) {
    return error_of([&] {
      TableReader reader(source);
      while (reader.next()) continue;
    });
  }
  Caught problem(std::string_view content) const { return read_error({.paths = {write("e.jsonl", content)}}); }
};

TEST_F(JsonLinesSourceTest, WhatPythonWritesBesideJsonIsNamed) {
  for (const std::string number : {"NaN", "Infinity", "-Infinity"}) {
    const Caught caught = problem("{\"a\": 1}\n{\"a\": " + number + ", \"b\": 1}\n");
    EXPECT_TRUE(caught.says(ErrorKind::kData, "e.jsonl, line 2: not valid JSON at byte"));
    EXPECT_TRUE(caught.says(ErrorKind::kData, ": " + number + ", expected null or a number")) << caught.text;
    EXPECT_FALSE(caught.says(ErrorKind::kData, "complete JSON object"));
    EXPECT_TRUE(problem("{\"a\": [1, " + number + "]}\n").says(ErrorKind::kData, ": " + number + ", expected"));
  }
  for (const std::string half : {R"("\ud83d")", R"("\ud83d and more")", R"("\ude00")", R"("\ud83d\u0041")"}) {
    EXPECT_TRUE(problem("{\"a\": " + half + "}\n")
                    .says(ErrorKind::kData, "half of a surrogate pair, expected UTF-8 or both halves"))
        << half;
  }
  EXPECT_TRUE(problem("{\"a\": -}\n").says(ErrorKind::kData, "each line must be one complete JSON object"));
  EXPECT_TRUE(problem("{\"a\": N}\n").says(ErrorKind::kData, "each line must be one complete JSON object"));
}

TEST_F(JsonLinesSourceTest, WhereTheFirstFileHasNullAloneOthersTellTheType) {
  const std::vector<fs::path> files{
      write("a.jsonl", "{\"n\": null, \"d\": null, \"x\": null, \"s\": null}\n"),
      write("b.jsonl", "{\"n\": 5, \"d\": null, \"x\": null, \"s\": \"x\"}\n"),
      write("c.jsonl", "{\"n\": 6, \"d\": {\"k\": [1]}, \"x\": null, \"s\": \"y\"}\n{\"d\": 1}\n")};
  TableReader reader({.paths = files});
  std::vector<Table> tables;
  while (const auto table = reader.next()) tables.push_back(*table);
  ASSERT_EQ(tables.size(), 3);
  for (const Table& table : tables) {
    EXPECT_EQ(table.labels("n").kind(), LabelKind::kInteger);
    EXPECT_TRUE(table.text("x").is_null(0));
    EXPECT_TRUE(error_of([&] { table.text("d"); }).says(ErrorKind::kData, "nested JSON values"));
  }
  EXPECT_TRUE(tables[0].labels("n").is_null(0));
  EXPECT_EQ(tables[1].labels("n").number(0), 5);
  EXPECT_EQ(tables[2].labels("n").number(0), 6);
  EXPECT_EQ(tables[1].text("s")[0], "x");
  // Those that are looked at need not have the same keys before they are reached.
  const auto other = write("o.jsonl", "{\"n\": 5, \"more\": 1}\n");
  EXPECT_TRUE(
      read_error({.paths = {files[0], other}}).says(ErrorKind::kData, "o.jsonl, line 1: key 'more' does not occur"));
  const auto late = write("late.jsonl", "{\"n\": null}\n{\"n\": 1}\n");
  EXPECT_TRUE(read_error({.paths = {late}, .rows_per_chunk = 1})
                  .says(ErrorKind::kData, "a string, or null alone (then let a row with its value come first)"));
}

TEST_F(JsonLinesSourceTest, PartsOfBlankLinesHoldNoRowsAmongOthers) {
  const auto blank = write("a.jsonl", std::string(10'000, ' ') + "\n\t\r\n\n");
  write("b.jsonl", "\n{\"text\": \"x\"}\n");
  write("c.jsonl", "\n");
  EXPECT_EQ(TableReader({.paths = {folder_}}).count_rows(), 1);
  EXPECT_TRUE(read_error({.paths = {blank}, .columns = {"text"}}).says(ErrorKind::kData, "no column 'text'"));
}

}  // namespace
}  // namespace strake::data::json_lines_source_test
