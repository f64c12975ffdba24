#include "strake/data/table_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "strake/data/table_writer.h"
#include "strake/data/test_folder.h"
#include "strake/data/text_input.h"

namespace strake::data::table_reader_test {
namespace {
namespace fs = std::filesystem;
using testing::ElementsAre;

class TableReaderTest : public FolderTest {
 protected:
  static std::vector<Table> read(const TableSource& source) {
    TableReader reader(source);
    std::vector<Table> tables;
    while (auto table = reader.next()) tables.push_back(*table);
    return tables;
  }

  static std::vector<std::string> texts(const TableSource& source, const std::string& column) {
    std::vector<std::string> result;
    for (const Table& table : read(source)) {
      const TextColumn text = table.text(column);
      for (int64_t i = 0; i < text.size(); ++i) result.push_back(text.is_null(i) ? "<null>" : std::string(text[i]));
    }
    return result;
  }

  static Caught read_error(const TableSource& source) {
    return error_of([&] { read(source); });
  }

  // A Parquet file with the columns of `csv`.
  fs::path parquet_of(const std::string& name, std::string_view csv) const {
    TableReader reader({.paths = {write(name + ".csv", csv)}});
    TableWriter writer(folder_ / name, {});
    while (const auto table = reader.next()) writer.append(*table, {});
    writer.finish();
    return folder_ / name;
  }
};

TEST_F(TableReaderTest, CsvFieldsMayHoldDelimitersQuotesAndLineEnds) {
  const auto file = write("a.csv",
                          "\xEF\xBB\xBFtext,label\r\n\"a, b\",x\r\n\r\n\"two\nlines \"\"quoted\"\"\",y\n"
                          "it\"s,\"\"\n,\n\"last\",z");
  EXPECT_THAT(texts({.paths = {file}}, "text"),
              ElementsAre("a, b", "two\nlines \"quoted\"", "it\"s", "<null>", "last"));
  EXPECT_THAT(texts({.paths = {file}}, "label"), ElementsAre("x", "y", "", "<null>", "z"));
  const Table table = read({.paths = {file}}).at(0);
  EXPECT_EQ(table.where(0), file.string() + ", row 0, line 2");
  EXPECT_EQ(table.where(1), file.string() + ", row 1, line 4");
  EXPECT_EQ(table.where(2), file.string() + ", row 2, line 6");
}

TEST_F(TableReaderTest, CsvRecordsMayStraddleReadBlocks) {
  // Records of growing size around the block size of 1 MiB, with quotes and two-byte characters at every alignment.
  std::string content = "id,text\n";
  std::vector<std::string> expected;
  for (size_t i = 0; i < 40; ++i) {
    const std::string filler(65000 + i * 7919, static_cast<char>('a' + i % 26));
    content += fmt::format("{},\"{}\"\"\u00E9\r\n{}\"\r\n", i, filler, filler);
    expected.push_back(fmt::format("{}\"\u00E9\r\n{}", filler, filler));
  }
  EXPECT_EQ(texts({.paths = {write("big.csv", content)}}, "text"), expected);
}

TEST_F(TableReaderTest, TsvIsCsvWithTabs) {
  const auto file = write("a.tsv", "text\tlabel\na, b\t1\n\"c\td\"\t2\n");
  EXPECT_THAT(texts({.paths = {file}}, "text"), ElementsAre("a, b", "c\td"));
}

TEST_F(TableReaderTest, CsvErrorsNameFileAndLine) {
  const auto fewer = write("fewer.csv", "a,b,c\n\"1\n2\",2,3\n1,2\n");
  EXPECT_TRUE(read_error({.paths = {fewer}}).says(ErrorKind::kData, "fewer.csv, line 4: 2 fields found, 3 expected"));
  const auto open = write("open.csv", "a,b\n1,2\n\"cut here");
  EXPECT_TRUE(read_error({.paths = {open}}).says(ErrorKind::kData, "open.csv, line 3: a quoted field"));
  const auto behind = write("behind.csv", "a,b\n\"x\ny\"z,2\n");
  EXPECT_TRUE(read_error({.paths = {behind}}).says(ErrorKind::kData, "behind.csv, line 3: 'z' follows"));
  const auto twice = write("twice.csv", "a,a\n1,2\n");
  EXPECT_TRUE(read_error({.paths = {twice}}).says(ErrorKind::kData, "two columns are named 'a'"));
  const auto blank = write("blank.csv", "\n\n");
  EXPECT_TRUE(read_error({.paths = {blank}}).says(ErrorKind::kData, "no header"));
}

TEST_F(TableReaderTest, UnclosedQuoteDoesNotPullTheWholeFileIntoMemory) {
  const auto file = write("q.csv", "a,b\n\"" + std::string(2 * kMaxRecordBytes, 'x'));
  EXPECT_TRUE(
      read_error({.paths = {file}}).says(ErrorKind::kData, "q.csv, line 2: the record that starts here is longer"));
}

TEST_F(TableReaderTest, UnnamedIndexColumnGetsTheNamePandasGivesIt) {
  TableReader reader({.paths = {write("i.csv", ",text\n0,a\n")}});
  EXPECT_THAT(reader.column_names(), ElementsAre("Unnamed: 0", "text"));
}

TEST_F(TableReaderTest, TextFilesHaveOneRowPerLine) {
  const auto file = write("a.txt", "\xEF\xBB\xBFone\r\n\ntwo \xE2\x80\xA8 still two\x85\nlast");
  const TableSource source{.paths = {file}, .encoding = TextEncoding::kLatin1};
  EXPECT_EQ(texts(source, "text").size(), 4U);
  EXPECT_THAT(texts({.paths = {write("b.txt", "one\r\n\ntwo\u2028\n")}}, "text"), ElementsAre("one", "", "two\u2028"));
}

TEST_F(TableReaderTest, JsonLinesKeepTypes) {
  const auto file =
      write("a.jsonl",
            "{\"text\": \"caf\\u00e9\", \"n\": 1, \"x\": 1, \"b\": true, \"deep\": {\"k\": [1, \"\u00FC\"]}}\n"
            "\n{\"x\": 0.5, \"text\": null, \"n\": -9223372036854775808, \"deep\": \"plain\"}\n");
  const Table table = read({.paths = {file}}).at(0);
  EXPECT_THAT(table.column_names(), ElementsAre("text", "n", "x", "b", "deep"));
  EXPECT_EQ(table.text("text")[0], "caf\u00E9");
  EXPECT_TRUE(table.text("text").is_null(1));
  EXPECT_EQ(table.labels("n").kind(), LabelKind::kInteger);
  EXPECT_EQ(table.labels("n").text(1), "-9223372036854775808");
  EXPECT_EQ(table.labels("x").kind(), LabelKind::kNumber);
  EXPECT_EQ(table.labels("x").number(1), 0.5);
  EXPECT_EQ(table.labels("x").text(0), "1");
  EXPECT_EQ(table.labels("b").kind(), LabelKind::kBool);
  EXPECT_TRUE(table.labels("b").is_null(1));
  EXPECT_EQ(table.where(1), file.string() + ", row 1, line 3");
  EXPECT_TRUE(error_of([&] { table.text("deep"); }).says(ErrorKind::kData, "nested JSON values"));
  EXPECT_TRUE(error_of([&] { table.labels("deep"); }).says(ErrorKind::kData, "nested JSON values"));
}

TEST_F(TableReaderTest, ColumnsThatRowsWouldFillWithNothingAreRefused) {
  std::string wide = "{";
  for (int key = 0; key < 20'000; ++key) wide += fmt::format("\"k{}\": 1, ", key);
  wide += "\"text\": \"x\"}\n";
  EXPECT_TRUE(read_error({.paths = {write("wide.jsonl", wide)}})
                  .says(ErrorKind::kData, "wide.jsonl, line 1: more than 16384 keys"));
  EXPECT_TRUE(read_error({.paths = {folder_ / "wide.jsonl"}, .columns = {"text"}})
                  .says(ErrorKind::kData, "wide.jsonl, line 1: more than 16384 keys"));
  std::string rows;
  for (int row = 0; row < 8'000; ++row) rows += "{}\n";
  std::string late = "{";
  for (int key = 0; key < 2'000; ++key) late += fmt::format("\"k{}\": 1, ", key);
  late += "\"text\": \"x\"}\n";
  EXPECT_TRUE(read_error({.paths = {write("late.jsonl", rows + late)}})
                  .says(ErrorKind::kData, "late.jsonl, line 8001: the first 8001 rows have 1049 different keys"));
  EXPECT_THAT(texts({.paths = {folder_ / "late.jsonl"}, .columns = {"text"}}, "text").back(), "x");
  std::string keys_of_rows;
  for (int row = 0; row < 3'000; ++row) keys_of_rows += fmt::format("{{\"a{}\": 1, \"b{}\": 2}}\n", row, row);
  EXPECT_TRUE(read_error({.paths = {write("ids.jsonl", keys_of_rows)}})
                  .says(ErrorKind::kData, "does not occur in the rows before"));
  EXPECT_TRUE(read_error({.paths = {write("wide.csv", std::string(16'384, ',') + "\n")}})
                  .says(ErrorKind::kData, "wide.csv, line 1: the record that starts here has more than 16384 fields"));
  EXPECT_TRUE(read_error({.paths = {write("long.csv", "text\n" + std::string(16'384, ',') + "\n")}})
                  .says(ErrorKind::kData, "long.csv, line 2: the record that starts here has more than 16384 fields"));
}

TEST_F(TableReaderTest, JsonLinesErrorsNameFileAndLine) {
  const auto problem = [&](std::string_view content) { return read_error({.paths = {write("e.jsonl", content)}}); };
  EXPECT_TRUE(problem("{\"a\": 1}\n[1]\n").says(ErrorKind::kData, "e.jsonl, line 2: an array instead of an object"));
  EXPECT_TRUE(problem("{\"a\": 1}\n3\n").says(ErrorKind::kData, "line 2: an integer instead of an object"));
  EXPECT_TRUE(problem("{\"a\": 1}\n{\"a\": \n").says(ErrorKind::kData, "line 2: not valid JSON at byte"));
  EXPECT_TRUE(problem("{\"a\": 1} {\"a\": 2}\n").says(ErrorKind::kData, "line 1: not valid JSON"));
  EXPECT_TRUE(problem("{\n\"a\": 1\n}\n").says(ErrorKind::kData, "line 1: not valid JSON"));
  EXPECT_TRUE(problem("{\"a\": 1e400}\n").says(ErrorKind::kData, "line 1: number 1e400 is out of range"));
  EXPECT_TRUE(problem("{\"a\": 1, \"a\": 2}\n").says(ErrorKind::kData, "key 'a' occurs twice"));
  EXPECT_TRUE(problem("{\"a\": 1}\n{\"a\": \"x\"}\n{\"a\": 2}\n")
                  .says(ErrorKind::kData, "line 1: key 'a' has an integer where other rows have a string"));
  EXPECT_TRUE(
      read_error({.paths = {write("d.jsonl", "{\"a\": 1}\n{\"a\": 1.5}\n")}, .rows_per_chunk = 1})
          .says(ErrorKind::kData, "has a decimal number where other rows have an integer; written as 1.0, the"));
  EXPECT_TRUE(problem("{\"a\": 18446744073709551615}\n").says(ErrorKind::kData, "out of range; name the columns"));
  EXPECT_TRUE(problem("{\"a\": " + std::string(100, '[') + "\n").says(ErrorKind::kData, "nested deeper than 64"));
  const auto late = write("late.jsonl", "{\"a\": 1}\n{\"b\": 1}\n");
  EXPECT_TRUE(read_error({.paths = {late}, .rows_per_chunk = 1})
                  .says(ErrorKind::kData, "late.jsonl, line 2: key 'b' does not occur in the rows before"));
}

TEST_F(TableReaderTest, WrongEncodingNamesLineOffsetAndByteAndCp1252ReadsIt) {
  const auto csv = write("w.csv", "text,label\ngood,1\nit\x92s,2\n");
  EXPECT_TRUE(read_error({.paths = {csv}})
                  .says(ErrorKind::kData,
                        "w.csv, line 3, byte offset 20: byte 0x92 is not valid UTF-8; if the file is "
                        "Windows text, pass --encoding cp1252"));
  EXPECT_THAT(texts({.paths = {csv}, .encoding = TextEncoding::kCp1252}, "text"), ElementsAre("good", "it\u2019s"));
  const auto undefined = write("u.txt", "a\nb\x81\n");
  EXPECT_TRUE(read_error({.paths = {undefined}, .encoding = TextEncoding::kCp1252})
                  .says(ErrorKind::kData, "u.txt, line 2, byte offset 3: byte 0x81 does not exist in cp1252"));
  const auto cut = write("cut.txt", "abc\xC3");
  EXPECT_TRUE(read_error({.paths = {cut}}).says(ErrorKind::kData, "cut.txt, line 1, byte offset 3: byte 0xC3"));
  const auto utf16 = write("utf16.txt", std::string_view("\xFF\xFE"
                                                         "a\0",
                                                         4));
  EXPECT_TRUE(read_error({.paths = {utf16}}).says(ErrorKind::kData, "UTF-16"));
}

TEST_F(TableReaderTest, WrongByteBehindTheFirstBlockIsLocatedExactly) {
  const std::string line(99, 'x');
  std::string content;
  for (int i = 0; i < 30000; ++i) content += line + "\n";
  content[2'500'050] = '\xA0';
  const auto file = write("far.txt", content);
  EXPECT_TRUE(read_error({.paths = {file}}).says(ErrorKind::kData, "line 25001, byte offset 2500050: byte 0xA0"));
}

TEST_F(TableReaderTest, PartsWithoutAByteHoldNoRowsAmongOthers) {
  for (const std::string kind : {"jsonl", "csv", "txt"}) {
    const std::string row = kind == "jsonl" ? R"({"text": "a"})" : "text\na";
    write("part-0." + kind, "");
    write("part-1." + kind, row + "\n");
    write("part-2." + kind, "");
    TableReader reader({.paths = {folder_}, .format = known_format("x." + kind)});
    EXPECT_EQ(reader.count_rows(), kind == "txt" ? 2 : 1) << kind;
    EXPECT_TRUE(read_error({.paths = {folder_ / ("part-0." + kind), folder_ / ("part-2." + kind)}})
                    .says(ErrorKind::kData, "part-0." + kind + " is empty"));
  }
  write("part-0.parquet", "");
  write("part-1.parquet", "PAR1");
  EXPECT_TRUE(read_error({.paths = {folder_}, .format = TableFormat::kParquet})
                  .says(ErrorKind::kData, "part-0.parquet is empty"));
}

TEST_F(TableReaderTest, MissingEmptyAndSpecialFilesAreNamed) {
  EXPECT_TRUE(read_error({.paths = {folder_ / "no.csv"}}).says(ErrorKind::kIo, "no.csv: no such file"));
  EXPECT_TRUE(read_error({.paths = {folder_ / "no.parquet"}}).says(ErrorKind::kIo, "no.parquet: no such file"));
  for (const std::string name : {"e.csv", "e.parquet", "e.jsonl", "e.txt"}) {
    EXPECT_TRUE(read_error({.paths = {write(name, "")}}).says(ErrorKind::kData, name + " is empty"));
  }
  ASSERT_EQ(::mkfifo((folder_ / "pipe.csv").c_str(), 0600), 0);
  EXPECT_TRUE(read_error({.paths = {folder_ / "pipe.csv"}}).says(ErrorKind::kIo, "not a regular file"));
  EXPECT_TRUE(read_error({.paths = {write("a.xlsx", "x")}}).says(ErrorKind::kUsage, ".parquet, .csv"));
  EXPECT_TRUE(read_error({}).says(ErrorKind::kUsage, "no input file"));
}

TEST_F(TableReaderTest, ParquetThatIsCutOrNoParquetIsRefused) {
  const auto whole = parquet_of("whole.parquet", "text\n" + std::string(5000, 'a') + "\nb\n");
  std::ifstream stream(whole, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(stream)), {});
  const auto half = write("half.parquet", bytes.substr(0, bytes.size() / 2));
  EXPECT_TRUE(read_error({.paths = {half}}).says(ErrorKind::kData, "half.parquet: "));
  const auto fake = write("fake.parquet", "text,label\n1,2\n");
  EXPECT_TRUE(read_error({.paths = {fake}}).says(ErrorKind::kData, "fake.parquet: "));
}

// Every damage must end in an Error or in rows, never in a crash; run under ASan it also shows no bad access.
TEST_F(TableReaderTest, DamagedParquetNeverCrashes) {
  std::string csv = "text,label\n";
  for (int i = 0; i < 300; ++i) csv += "some text " + std::to_string(i * i) + "," + std::to_string(i % 3) + "\n";
  std::ifstream stream(parquet_of("ok.parquet", csv), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(stream)), {});
  int refused = 0;
  for (size_t i = 0; i < 600; ++i) {
    std::string damaged = bytes;
    const size_t at = i * 7919 % damaged.size();
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << i % 8));
    if (i % 3 == 0) damaged[(at + 1) % damaged.size()] = '\x7F';
    const Caught caught = error_of([&] {
      for (const Table& table : read({.paths = {write("damaged.parquet", damaged)}})) {
        table.text(table.column_names().at(0));
      }
    });
    if (caught.kind) ++refused;
    EXPECT_TRUE(!caught.kind || caught.says(*caught.kind, "damaged.parquet")) << caught.text;
  }
  EXPECT_GT(refused, 100);
}

TEST_F(TableReaderTest, MissingAndWrongColumnsAreNamed) {
  const Table table = read({.paths = {write("a.jsonl", "{\"review\": \"x\", \"score\": 1}\n")}}).at(0);
  EXPECT_TRUE(error_of([&] {
                table.text("reviw");
              }).says(ErrorKind::kData, "there is no column 'reviw'; the columns are review, score; did you mean"));
  EXPECT_TRUE(error_of([&] { table.text("score"); }).says(ErrorKind::kData, "column 'score' has the type int64"));
}

TEST_F(TableReaderTest, LabelsAreConvertedExactlyOrRefusedWithTheirRow) {
  const auto file = write("l.csv", "label\n3\n-7\n2.5\nx\n\n\"\"\n99999999999999999999\nnan\n");
  const Table table = read({.paths = {file}}).at(0);
  const LabelColumn labels = table.labels("label");
  EXPECT_EQ(labels.kind(), LabelKind::kText);
  EXPECT_EQ(labels.number(1), -7);
  EXPECT_EQ(labels.number(2), 2.5);
  EXPECT_TRUE(error_of([&] {
                labels.number(3);
              }).says(ErrorKind::kData, "l.csv, row 3, line 5: column 'label' has 'x', expected a finite number"));
  EXPECT_TRUE(error_of([&] { labels.number(4); }).says(ErrorKind::kData, "has '', expected"));
  EXPECT_EQ(labels.number(5), 1e20);
  EXPECT_TRUE(error_of([&] { labels.number(6); }).says(ErrorKind::kData, "row 6, line 9"));
}

TEST_F(TableReaderTest, FoldersAreReadInOrderOfNamesAndRowsCountOn) {
  fs::create_directories(folder_ / "parts");
  write("parts/b.csv", "text\nthree\nfour\n");
  write("parts/a.csv", "text\none\ntwo\n");
  write("parts/_SUCCESS", "");
  write("parts/.a.csv.crc", "x");
  write("parts/c.csv", "text\n");
  const TableSource source{.paths = {folder_ / "parts"}, .rows_per_chunk = 1};
  EXPECT_THAT(texts(source, "text"), ElementsAre("one", "two", "three", "four"));
  const std::vector<Table> tables = read(source);
  ASSERT_EQ(tables.size(), 4U);
  EXPECT_EQ(tables[3].first_row(), 3);
  EXPECT_EQ(tables[3].where(0), (folder_ / "parts/b.csv").string() + ", row 1, line 3");
  write("parts/d.csv", "text,label\nx,y\n");
  EXPECT_TRUE(read_error(source).says(ErrorKind::kData, "d.csv: its columns differ"));
  write("parts/e.txt", "x");
  EXPECT_TRUE(read_error(source).says(ErrorKind::kUsage, "different kinds"));
  fs::create_directories(folder_ / "none");
  EXPECT_TRUE(read_error({.paths = {folder_ / "none"}}).says(ErrorKind::kData, "holds no data files"));
}

TEST_F(TableReaderTest, FoldersOfWhichSubfoldersHoldDataAreRefused) {
  fs::create_directories(folder_ / "hive/y=1/m=1");
  fs::create_directories(folder_ / "hive/_delta_log");
  fs::create_directories(folder_ / "hive/.checkpoints");
  fs::create_directories(folder_ / "hive/scored");
  fs::create_directories(folder_ / "hive/half");
  write("hive/_delta_log/0.json", "{}");
  write("hive/.checkpoints/a.csv", "text\nx\n");
  write("hive/scored/part-00000.csv", "text\nx\n");
  write("hive/scored/_manifest.json", "{}");
  fs::create_directories(folder_ / "hive/half/.job-00001-of-00002");
  write("hive/half/part-00000.csv", "text\nx\n");
  const TableSource source{.paths = {folder_ / "hive"}};
  EXPECT_TRUE(read_error(source).says(ErrorKind::kData, "holds no data files"));
  write("hive/y=1/m=1/a.csv", "text\nx\n");
  const std::string within = (folder_ / "hive/*/*/*.csv").string();
  EXPECT_TRUE(read_error(source).says(ErrorKind::kData, "its subfolder y=1 holds data files"));
  EXPECT_TRUE(read_error(source).says(ErrorKind::kData, "the pattern " + within));
  const auto top = write("hive/top.csv", "text\ny\n");
  EXPECT_TRUE(read_error(source).says(ErrorKind::kData, (folder_ / "hive/*.csv").string() + " " + within));
  EXPECT_THAT(texts({.paths = {top, folder_ / "hive/y=1/m=1"}}, "text"), ElementsAre("y", "x"));
  fs::rename(folder_ / "hive/y=1/m=1/a.csv", folder_ / "hive/y=1/m=1/notes.txt");
  EXPECT_THAT(texts(source, "text"), ElementsAre("y"));  // of another kind than the files of the folder
}

TEST_F(TableReaderTest, FilesAreComparedBeforeRowsAreRead) {
  const auto problem = [](const TableSource& source) { return error_of([&] { const TableReader reader(source); }); };
  const auto a = parquet_of("a.parquet", "text,label\nx,y\n");
  const auto b = parquet_of("b.parquet", "text,other\nx,y\n");
  EXPECT_TRUE(problem({.paths = {a, b}}).says(ErrorKind::kData, "b.parquet: its columns differ"));
  EXPECT_TRUE(problem({.paths = {a, b}, .columns = {"label"}}).says(ErrorKind::kData, "b.parquet: there is no column"));
  EXPECT_FALSE(problem({.paths = {a, b}, .columns = {"text"}}).kind);
  EXPECT_TRUE(problem({.paths = {a, write("cut.parquet", "PAR1")}}).says(ErrorKind::kData, "cut.parquet"));
  const auto csv = write("a.csv", "text,label\nx,y\n");
  EXPECT_TRUE(problem({.paths = {csv, write("b.csv", "text\nx\n")}}).says(ErrorKind::kData, "b.csv: its columns"));
  const auto lines = write("a.jsonl", "{\"text\": \"x\"}\n");
  EXPECT_TRUE(problem({.paths = {lines, folder_ / "no.jsonl"}}).says(ErrorKind::kIo, "no.jsonl: no such file"));
}

TEST_F(TableReaderTest, ColumnsAndCountOfRowsAreKnownBeforeRowsAreRead) {
  const std::string csv = "text,label\nx,y\nz,w\n";
  for (const auto& file : {write("k.csv", csv), parquet_of("k.parquet", csv)}) {
    const TableSource source{.paths = {file, file}, .columns = {"label"}};
    EXPECT_THAT(names_of_columns(source), ElementsAre("text", "label"));
    TableReader reader(source);
    EXPECT_THAT(reader.no_rows().column_names(), ElementsAre("label"));
    EXPECT_EQ(reader.count_rows(), 4);
    reader.limit_to(3, 4);
    const auto table = reader.next();
    EXPECT_EQ(table->num_rows(), 1);
    EXPECT_EQ(table->first_row(), 3);
    EXPECT_EQ(table->text("label")[0], "w");
    EXPECT_FALSE(reader.next());
  }
}

TEST_F(TableReaderTest, ASourceWithoutRowsStillGivesItsColumns) {
  const std::vector<Table> tables = read({.paths = {write("h.csv", "text,label\n")}});
  ASSERT_EQ(tables.size(), 1U);
  EXPECT_EQ(tables[0].num_rows(), 0);
  EXPECT_THAT(tables[0].column_names(), ElementsAre("text", "label"));
  const auto parquet = parquet_of("h.parquet", "text,label\n");
  EXPECT_EQ(read({.paths = {parquet}}).at(0).num_rows(), 0);
}

TEST_F(TableReaderTest, OnlyTheColumnsAskedForAreRead) {
  for (const auto& file : {write("s.csv", "a,b,c\n1,2,3\n"), parquet_of("s.parquet", "a,b,c\n1,2,3\n")}) {
    const Table table = read({.paths = {file}, .columns = {"c", "a"}}).at(0);
    EXPECT_THAT(table.column_names(), ElementsAre("c", "a"));
    EXPECT_EQ(table.text("c")[0], "3");
    EXPECT_TRUE(read_error({.paths = {file}, .columns = {"d"}}).says(ErrorKind::kData, "no column 'd'"));
  }
}

TEST_F(TableReaderTest, ColumnsThatAreNotReadNeedNotFitTogether) {
  const auto lines = write("x.jsonl",
                           "{\"x\": 1, \"text\": \"a\"}\n"
                           "{\"text\": \"b\", \"x\": 1.5, \"x\": \"twice\", \"big\": 18446744073709551616}\n"
                           "{\"x\": {\"k\": [1, {\"k\": 2, \"k\": 18446744073709551615}]}, \"text\": \"c\"}\n"
                           "{\"deep\": " +
                               std::string(100, '[') + std::string(100, ']') + ", \"text\": \"d\", \"new\": {}}\n");
  const auto later = write("y.jsonl", "{\"x\": \"s\", \"text\": \"e\", \"other\": 2}\n");
  TableSource source{.paths = {lines, later}, .rows_per_chunk = 1, .columns = {"text"}};
  EXPECT_THAT(texts(source, "text"), ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_EQ(TableReader(source).count_rows(), 5);
  source.columns = {"text", "x"};
  EXPECT_TRUE(read_error(source).says(ErrorKind::kData, "line 2: key 'x' occurs twice"));
  source.columns = {"txt"};
  EXPECT_TRUE(read_error(source).says(ErrorKind::kData, "no column 'txt'; the columns are x, text; did you mean"));
  source = {.paths = {write("z.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\", \"x\": [1,}\n")}, .columns = {"text"}};
  EXPECT_TRUE(read_error(source).says(ErrorKind::kData, "line 2: not valid JSON"));

  const auto csv = write("x.csv", "a,text,a\n1,b,2\n");
  EXPECT_THAT(texts({.paths = {csv, write("y.csv", "text,c\nd,3\n")}, .columns = {"text"}}, "text"),
              ElementsAre("b", "d"));
  EXPECT_TRUE(read_error({.paths = {csv}, .columns = {"a"}}).says(ErrorKind::kData, "two columns are named 'a'"));
  const TableSource cut{.paths = {write("z.csv", "a,text\n1,b\nc\n")}, .columns = {"text"}};
  EXPECT_TRUE(read_error(cut).says(ErrorKind::kData, "line 3: 1 fields found, 2 expected (a, text)"));
}

TEST_F(TableReaderTest, ARangeOfRowsIsReadAcrossFilesWithItsPlaces) {
  const auto a = write("a.csv", "text\na0\na1\na2\n");
  const auto b = write("b.csv", "text\nb0\nb1\n");
  const std::vector<std::string> all = {"a0", "a1", "a2", "b0", "b1"};
  EXPECT_EQ(TableReader({.paths = {a, b}}).count_rows(), 5);
  for (int64_t begin = 0; begin <= 6; ++begin) {
    for (int64_t end = begin; end <= 7; ++end) {
      const std::vector<std::string> expected(all.begin() + std::min<int64_t>(begin, 5),
                                              all.begin() + std::min<int64_t>(end, 5));
      for (const int64_t rows : {1, 2, 8192}) {
        const TableSource source{.paths = {a, b}, .rows_per_chunk = rows, .first_row = begin, .end_row = end};
        EXPECT_EQ(texts(source, "text"), expected) << begin << " to " << end;
      }
    }
  }
  const Table second = read({.paths = {a, b}, .first_row = 2}).at(1);
  EXPECT_EQ(second.first_row(), 3);
  EXPECT_EQ(second.where(1), b.string() + ", row 1, line 3");
  const Table middle = read({.paths = {a}, .first_row = 1, .end_row = 2}).at(0);
  EXPECT_EQ(middle.num_rows(), 1);
  EXPECT_EQ(middle.where(0), a.string() + ", row 1, line 3");
  EXPECT_TRUE(
      error_of([&] { TableReader({.paths = {a}, .first_row = 3, .end_row = 2}); }).says(ErrorKind::kConfig, "[3, 2)"));
}

TEST_F(TableReaderTest, ARangeOfParquetRowsPassesOverRowGroups) {
  std::string csv = "text\n";
  for (int i = 0; i < 100; ++i) csv += fmt::format("t{}\n", i);
  const auto file = folder_ / "a.parquet";
  TableReader reader({.paths = {write("a.csv", csv)}, .rows_per_chunk = 10});
  TableWriter writer(file, {.rows_per_group = 10});
  while (const auto table = reader.next()) writer.append(*table, {});
  writer.finish();
  EXPECT_EQ(TableReader({.paths = {file, file}}).count_rows(), 200);
  for (const auto& [begin, end] :
       {std::pair<int64_t, int64_t>{0, 10}, {9, 11}, {20, 20}, {55, 100}, {99, 120}, {95, 205}}) {
    const std::vector<Table> tables = read({.paths = {file, file}, .first_row = begin, .end_row = end});
    int64_t next = begin;
    for (const Table& table : tables) {
      for (int64_t i = 0; i < table.num_rows(); ++i, ++next) {
        EXPECT_EQ(table.text("text")[i], fmt::format("t{}", next % 100));
        EXPECT_EQ(table.where(i), fmt::format("{}, row {}", file.string(), next % 100));
      }
    }
    EXPECT_EQ(next, std::min<int64_t>(end, 200));
  }
}

TEST_F(TableReaderTest, TablesOfLongRowsEndByTheirBytesInEveryFormat) {
  constexpr int64_t kRows = 50;
  constexpr int64_t kRowBytes = kTableBytes / 10 + 1;
  std::string text;
  for (int64_t i = 0; i < kRows; ++i) text += fmt::format("{}{}\n", i % 10, std::string(kRowBytes - 1, 'x'));
  const auto lines = write("long.txt", text);
  const auto csv = write("long.csv", "text\n" + text);
  std::vector<fs::path> files = {lines, csv, folder_ / "long.parquet"};
  {
    TableReader reader({.paths = {csv}});
    TableWriter writer(files.back(), {});  // ten values, as a dictionary
    while (const auto table = reader.next()) writer.append(*table, {});
    writer.finish();
  }
  files.insert(files.end(), {files[0], files[1], files[2]});  // the cut is the same every time
  for (const fs::path& file : files) {
    int64_t next = 0;
    for (const Table& table : read({.paths = {file}})) {
      EXPECT_EQ(table.num_rows(), 10) << file;
      const TextColumn column = table.text("text");
      for (int64_t i = 0; i < table.num_rows(); ++i, ++next) {
        EXPECT_EQ(column[i].front(), static_cast<char>('0' + next % 10));
        EXPECT_EQ(std::ssize(column[i]), kRowBytes);
      }
    }
    EXPECT_EQ(next, kRows);
  }
}

TEST_F(TableReaderTest, ValuesOfListsCountWithTheirPlaces) {
  constexpr int64_t kValues = 100'000;
  constexpr int64_t kMostRows = kTableBytes / (kValues * 2 * static_cast<int64_t>(sizeof(int32_t))) + 1;
  const auto text = write("rows.txt", "a\n" + std::string(60, '\n'));
  const Table table = TableReader({.paths = {text}}).next().value();
  const std::vector<std::vector<int32_t>> lists(static_cast<size_t>(table.num_rows()),
                                                std::vector<int32_t>(kValues, 7));
  {
    TableWriter writer(folder_ / "lists.parquet", {});
    const std::vector<ExtraColumn> extra = {{"numbers", lists}};
    writer.append(table, extra);
    writer.finish();
  }
  int64_t rows = 0;
  for (const Table& part : read({.paths = {folder_ / "lists.parquet"}})) {
    EXPECT_LE(part.num_rows(), kMostRows);
    rows += part.num_rows();
  }
  EXPECT_EQ(rows, table.num_rows());
}

TEST_F(TableReaderTest, TablesAreCutAndNarrowed) {
  const Table table = read({.paths = {write("a.csv", "text,id\na,0\nb,1\nc,2\n")}}).at(0);
  const Table part = table.slice(1, 3).select({"id"});
  EXPECT_EQ(part.num_rows(), 2);
  EXPECT_EQ(part.first_row(), 1);
  EXPECT_THAT(part.column_names(), ElementsAre("id"));
  EXPECT_EQ(part.text("id")[1], "2");
  EXPECT_EQ(part.where(1), table.where(2));
  EXPECT_EQ(table.select({}).num_rows(), 3);
  EXPECT_TRUE(error_of([&] { table.select({"x"}); }).says(ErrorKind::kData, "there is no column 'x'"));
}

TEST_F(TableReaderTest, MessagesDoNotPassControlCharactersOn) {
  const auto file = write("esc.jsonl", "{\"\\u001b[2J\": 1}\n");
  const Table table = read({.paths = {file}}).at(0);
  EXPECT_EQ(error_of([&] { table.text("x"); }).text.find('\x1B'), std::string::npos);
}

}  // namespace
}  // namespace strake::data::table_reader_test
