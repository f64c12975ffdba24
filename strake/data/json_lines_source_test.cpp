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

}  // namespace
}  // namespace strake::data::json_lines_source_test
