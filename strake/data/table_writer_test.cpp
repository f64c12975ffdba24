#include "strake/data/table_writer.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <gmock/gmock.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>
#include <sys/resource.h>

#include <csignal>

#include "strake/data/table_reader.h"
#include "strake/data/test_folder.h"

namespace strake::data::table_writer_test {
namespace {
namespace fs = std::filesystem;

template <typename Builder, typename Value>
std::shared_ptr<arrow::Array> array_of(const std::shared_ptr<arrow::DataType>& type, const std::vector<Value>& values) {
  std::unique_ptr<arrow::ArrayBuilder> builder;
  EXPECT_TRUE(arrow::MakeBuilder(arrow::default_memory_pool(), type, &builder).ok());
  for (const Value& value : values) EXPECT_TRUE(static_cast<Builder&>(*builder).Append(value).ok());
  EXPECT_TRUE(builder->AppendNull().ok());
  return builder->Finish().ValueOrDie();
}

// Three rows (the last one null) of every type that a data file of ours may pass through.
std::shared_ptr<arrow::Table> table_of_all_types() {
  const auto i32 = array_of<arrow::Int32Builder, int32_t>(arrow::int32(), {5, -6});
  const auto text = array_of<arrow::StringBuilder, std::string>(arrow::utf8(), {"caf\u00E9", "\u20AC"});
  arrow::StringDictionary32Builder words;
  EXPECT_TRUE(words.Append("x").ok() && words.Append("y").ok() && words.AppendNull().ok());
  const std::vector<std::pair<std::string, std::shared_ptr<arrow::Array>>> columns = {
      {"i8", array_of<arrow::Int8Builder, int8_t>(arrow::int8(), {-128, 127})},
      {"i16", array_of<arrow::Int16Builder, int16_t>(arrow::int16(), {-300, 300})},
      {"i32", i32},
      {"i64", array_of<arrow::Int64Builder, int64_t>(arrow::int64(), {1, int64_t{1} << 60})},
      {"u8", array_of<arrow::UInt8Builder, uint8_t>(arrow::uint8(), {0, 255})},
      {"u32", array_of<arrow::UInt32Builder, uint32_t>(arrow::uint32(), {1, 4000000000U})},
      {"f32", array_of<arrow::FloatBuilder, float>(arrow::float32(), {0.1F, -2})},
      {"f64", array_of<arrow::DoubleBuilder, double>(arrow::float64(), {0.1, 1e300})},
      {"flag", array_of<arrow::BooleanBuilder, bool>(arrow::boolean(), {true, false})},
      {"text", text},
      {"large", array_of<arrow::LargeStringBuilder, std::string>(arrow::large_utf8(), {"a", "b"})},
      {"view", array_of<arrow::StringViewBuilder, std::string>(arrow::utf8_view(), {"a", "longer than twelve bytes"})},
      {"bytes", array_of<arrow::BinaryBuilder, std::string>(arrow::binary(), {"\xFF\x01", ""})},
      {"when", array_of<arrow::TimestampBuilder, int64_t>(arrow::timestamp(arrow::TimeUnit::MICRO, "UTC"), {1, 2})},
      {"day", array_of<arrow::Date32Builder, int32_t>(arrow::date32(), {1, 20000})},
      {"words", words.Finish().ValueOrDie()},
      {"none", std::make_shared<arrow::NullArray>(3)},
      {"pair", arrow::StructArray::Make({i32, text}, std::vector<std::string>{"n", "t"}).ValueOrDie()},
  };
  arrow::FieldVector fields;
  arrow::ArrayVector arrays;
  for (const auto& [name, array] : columns) {
    fields.push_back(arrow::field(name, array->type()));
    arrays.push_back(array);
  }
  auto values = std::make_shared<arrow::Int64Builder>();
  arrow::ListBuilder lists(arrow::default_memory_pool(), values);
  EXPECT_TRUE(lists.Append().ok() && values->AppendValues({1, 2, 3}).ok() && lists.Append().ok() &&
              lists.AppendNull().ok());
  arrays.push_back(lists.Finish().ValueOrDie());
  fields.push_back(arrow::field("list", arrays.back()->type()));
  return arrow::Table::Make(arrow::schema(fields, arrow::key_value_metadata({"note"}, {"kept"})), arrays);
}

void write_arrow(const fs::path& file, const arrow::Table& table, int64_t rows_per_group = 2) {
  const auto sink = arrow::io::FileOutputStream::Open(file.string()).ValueOrDie();
  const auto keep = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  ASSERT_TRUE(parquet::arrow::WriteTable(table, arrow::default_memory_pool(), sink, rows_per_group,
                                         parquet::default_writer_properties(), keep)
                  .ok());
}

std::shared_ptr<arrow::Table> read_arrow(const fs::path& file) {
  parquet::arrow::FileReaderBuilder builder;
  EXPECT_TRUE(builder.Open(arrow::io::ReadableFile::Open(file.string()).ValueOrDie()).ok());
  const auto reader = builder.Build().ValueOrDie();
  return reader->ReadTable().ValueOrDie()->CombineChunks().ValueOrDie();
}

class TableWriterTest : public FolderTest {
 protected:
  void copy(const fs::path& from, const fs::path& to, const TableSource& source = {}) {
    TableSource whole = source;
    whole.paths = {from};
    TableReader reader(whole);
    TableWriter writer(to, {});
    while (const auto table = reader.next()) writer.append(*table, {});
    writer.finish();
  }
};

TEST_F(TableWriterTest, EveryTypePassesThroughUnchanged) {
  const auto expected = table_of_all_types();
  write_arrow(folder_ / "in.parquet", *expected);
  for (const int64_t rows : {1, 2, 100}) {
    copy(folder_ / "in.parquet", folder_ / "out.parquet", {.rows_per_chunk = rows});
    const auto found = read_arrow(folder_ / "out.parquet");
    EXPECT_TRUE(found->schema()->Equals(*expected->schema())) << found->schema()->ToString();
    for (int i = 0; i < expected->num_columns(); ++i) {
      EXPECT_TRUE(found->column(i)->Equals(*expected->column(i))) << expected->field(i)->ToString();
    }
    EXPECT_EQ(found->schema()->metadata()->Get("note").ValueOr(""), "kept");
  }
}

TEST_F(TableWriterTest, TextAndLabelsComeFromEveryStringAndNumberType) {
  write_arrow(folder_ / "in.parquet", *table_of_all_types());
  TableReader reader({.paths = {folder_ / "in.parquet"}});
  const Table table = reader.next().value();
  const Table nulls = reader.next().value();  // the last row, alone: row groups have two
  ASSERT_EQ(table.num_rows(), 2);
  ASSERT_EQ(nulls.num_rows(), 1);
  for (const std::string name : {"text", "large", "view", "words", "none"}) {
    EXPECT_TRUE(nulls.text(name).is_null(0)) << name;
    EXPECT_EQ(table.text(name).is_null(1), name == "none") << name;
  }
  EXPECT_EQ(table.text("text")[1], "\u20AC");
  EXPECT_EQ(table.text("view")[1], "longer than twelve bytes");
  EXPECT_EQ(table.text("words")[1], "y");
  EXPECT_EQ(table.labels("words").text(0), "x");
  EXPECT_EQ(table.labels("i8").text(0), "-128");
  EXPECT_EQ(table.labels("u32").text(1), "4000000000");
  EXPECT_EQ(table.labels("i64").text(1), std::to_string(int64_t{1} << 60));
  EXPECT_EQ(table.labels("f32").text(0), "0.1");
  EXPECT_EQ(table.labels("f64").text(0), "0.1");
  EXPECT_EQ(table.labels("f64").number(1), 1e300);
  EXPECT_EQ(table.labels("flag").text(0), "true");
  EXPECT_EQ(table.labels("flag").number(1), 0);
  EXPECT_TRUE(
      error_of([&] { nulls.labels("i8").number(0); }).says(ErrorKind::kData, "row 2: column 'i8' has no value"));
  for (const std::string name : {"bytes", "when", "list", "pair"}) {
    EXPECT_TRUE(error_of([&] { table.text(name); }).says(ErrorKind::kData, "column '" + name + "' has the type"));
    EXPECT_TRUE(error_of([&] { table.labels(name); }).says(ErrorKind::kData, "labels must be"));
  }
}

TEST_F(TableWriterTest, ParquetTextInAnotherEncodingNamesTheRowOrIsDecoded) {
  const auto text = array_of<arrow::StringBuilder, std::string>(arrow::utf8(), {"fine", "it\x92s"});
  write_arrow(folder_ / "w.parquet", *arrow::Table::Make(arrow::schema({arrow::field("text", arrow::utf8())}), {text}));
  EXPECT_TRUE(error_of([&] {
                copy(folder_ / "w.parquet", folder_ / "out.parquet");
              }).says(ErrorKind::kData, "w.parquet, row 1, column 'text', byte offset 2 of the value: byte 0x92"));
  EXPECT_FALSE(fs::exists(folder_ / "out.parquet"));
  copy(folder_ / "w.parquet", folder_ / "out.parquet", {.encoding = TextEncoding::kCp1252});
  TableReader reader({.paths = {folder_ / "out.parquet"}});
  EXPECT_EQ(reader.next()->text("text")[1], "it\u2019s");
}

TEST_F(TableWriterTest, ColumnsAndMetadataAreAdded) {
  TableReader reader({.paths = {write("a.csv", "text,label\none,1\n,2\n")}});
  const Table table = reader.next().value();
  {
    TableWriter writer(folder_ / "out.parquet", {.metadata = {{"strake.model", "m"}}});
    const std::vector<ExtraColumn> extra = {{"prediction", std::vector<std::string>{"a", "b"}},
                                            {"score", std::vector<float>{0.5F, 0.25F}},
                                            {"class", std::vector<int32_t>{1, 2}},
                                            {"index", std::vector<int64_t>{7, 8}},
                                            {"probabilities", FloatRows{{0.5F, 0.5F, 0.25F, 0.75F}, 2}},
                                            {"tokens", std::vector<std::vector<int32_t>>{{1, 2, 3}, {}}},
                                            {"words", OptionalLists<std::string>{{"O", std::nullopt}, {}}},
                                            {"sure", OptionalLists<float>{{}, {std::nullopt, 0.5F}}}};
    writer.append(table, extra);
    writer.finish();
  }
  const auto found = read_arrow(folder_ / "out.parquet");
  EXPECT_THAT(found->schema()->field_names(),
              testing::ElementsAre("text", "label", "prediction", "score", "class", "index", "probabilities", "tokens",
                                   "words", "sure"));
  EXPECT_EQ(found->schema()->metadata()->Get("strake.model").ValueOr(""), "m");
  EXPECT_EQ(found->column(0)->chunk(0)->null_count(), 1);
  EXPECT_EQ(found->column(2)->chunk(0)->ToString(), "[\n  \"a\",\n  \"b\"\n]");
  const auto& lists = static_cast<const arrow::ListArray&>(*found->column(6)->chunk(0));
  EXPECT_EQ(static_cast<const arrow::FloatArray&>(*lists.value_slice(1)).Value(1), 0.75F);
  EXPECT_EQ(static_cast<const arrow::ListArray&>(*found->column(7)->chunk(0)).value_length(0), 3);
  const auto words = static_cast<const arrow::ListArray&>(*found->column(8)->chunk(0)).values();
  EXPECT_EQ(words->ToString(), "[\n  \"O\",\n  null\n]");
  const auto sure = static_cast<const arrow::ListArray&>(*found->column(9)->chunk(0)).values();
  EXPECT_EQ(sure->ToString(), "[\n  null,\n  0.5\n]");
}

TEST_F(TableWriterTest, TakenNamesAreRefused) {
  TableReader reader({.paths = {write("a.csv", "text,prediction\none,1\n")}});
  const Table table = reader.next().value();
  TableWriter writer(folder_ / "out.parquet", {});
  const std::vector<ExtraColumn> taken = {{"prediction", std::vector<float>{1}}};
  EXPECT_TRUE(error_of([&] {
                writer.append(table, taken);
              }).says(ErrorKind::kData, "a.csv: the column 'prediction' that would be added already exists"));
  const std::vector<ExtraColumn> twice = {{"x", std::vector<float>{1}}, {"x", std::vector<float>{1}}};
  EXPECT_TRUE(error_of([&] { writer.append(table, twice); }).says(ErrorKind::kData, "'x'"));
}

TEST_F(TableWriterTest, RowGroupsAreCutByRowsAndByBytes) {
  std::string csv = "text\n";
  for (int i = 0; i < 1000; ++i) csv += std::string(100, static_cast<char>('a' + i % 26)) + "\n";
  const auto groups = [&](const TableWriterOptions& options) {
    TableReader reader({.paths = {write("a.csv", csv)}, .rows_per_chunk = 50});
    TableWriter writer(folder_ / "out.parquet", options);
    while (const auto table = reader.next()) writer.append(*table, {});
    writer.finish();
    parquet::arrow::FileReaderBuilder builder;
    EXPECT_TRUE(builder.Open(arrow::io::ReadableFile::Open((folder_ / "out.parquet").string()).ValueOrDie()).ok());
    return builder.Build().ValueOrDie()->num_row_groups();
  };
  EXPECT_EQ(groups({}), 1);
  EXPECT_EQ(groups({.rows_per_group = 250}), 4);
  EXPECT_EQ(groups({.bytes_per_group = 20000}), 7);  // 3 chunks of 50 x (100 + 4) bytes fit into each
}

// As categories of other programs are: every table has the dictionary of all.
TEST_F(TableWriterTest, ALargeDictionaryIsNotWrittenAgainWithEveryRowGroup) {
  constexpr int64_t kValues = 6000, kRows = 20'000;
  arrow::StringBuilder values;
  for (int64_t i = 0; i < kValues; ++i) ASSERT_TRUE(values.Append(fmt::format("{:0>1000}", i * i * i)).ok());
  arrow::Int32Builder indices;
  for (int64_t i = 0; i < kRows; ++i) ASSERT_TRUE(indices.Append(static_cast<int32_t>(i * 7919 % kValues)).ok());
  const auto array =
      arrow::DictionaryArray::FromArrays(indices.Finish().ValueOrDie(), values.Finish().ValueOrDie()).ValueOrDie();
  const auto whole = arrow::Table::Make(arrow::schema({arrow::field("kind", array->type())}), {array});
  const fs::path input = folder_ / "in.parquet", output = folder_ / "out.parquet";
  write_arrow(input, *whole, kRows);
  TableReader reader({.paths = {input}, .rows_per_chunk = 500});
  TableWriter writer(output, {.bytes_per_group = int64_t{8} << 20});
  int64_t tables = 0;
  for (; const auto table = reader.next(); ++tables) writer.append(*table, {});
  writer.finish();
  EXPECT_GE(tables, 40);
  const auto file = parquet::ParquetFileReader::OpenFile(output.string());
  EXPECT_EQ(file->metadata()->num_rows(), kRows);
  EXPECT_LE(file->metadata()->num_row_groups(), 3) << "of 20 MB, each value with its rows";
  EXPECT_GE(file->metadata()->num_row_groups(), 2);
  EXPECT_TRUE(read_arrow(output)->schema()->Equals(*whole->schema()));
  EXPECT_LT(fs::file_size(output), 2 * fs::file_size(input));
}

TEST_F(TableWriterTest, FinishingReturnsSizeAndChecksum) {
  const fs::path in = write("in.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  const fs::path out = folder_ / "out.parquet";
  TableWriter writer(out, {.rows_per_group = 1, .metadata = {{"strake.model", "m"}}});
  writer.append(*TableReader({.paths = {in}}).next(), {});
  const FileSum sum = writer.finish();
  EXPECT_EQ(sum.bytes, fs::file_size(out));
  EXPECT_EQ(sum.crc, crc32c_of_file(out, 0, static_cast<int64_t>(sum.bytes)));
}

TEST_F(TableWriterTest, UnfinishedAndFailedFilesLeaveTheOldOneAlone) {
  const auto out = write("out.parquet", "old");
  TableReader reader({.paths = {write("a.csv", "text\none\n")}});
  const Table table = reader.next().value();
  {
    TableWriter writer(out, {});
    writer.append(table, {});
  }
  // A file size limit fails in write() as a full disk does (EFBIG instead of ENOSPC).
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  getrlimit(RLIMIT_FSIZE, &unlimited);
  for (const rlim_t most : {rlim_t{1}, rlim_t{4096}}) {
    const rlimit small{most, unlimited.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    const Caught caught = error_of([&] {
      TableWriter writer(out, {});
      std::vector<float> noise(200000);
      for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<float>(i * 2654435761U % 1000003U);
      const std::vector<ExtraColumn> extra = {{"noise", FloatRows{noise, 200000}}};
      writer.append(table, extra);
      writer.finish();
    });
    setrlimit(RLIMIT_FSIZE, &unlimited);
    EXPECT_TRUE(caught.says(ErrorKind::kIo, "out.parquet: File too large; the previous file is unchanged")) << most;
  }
  std::ifstream stream(out);
  EXPECT_EQ(std::string((std::istreambuf_iterator<char>(stream)), {}), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2);
  EXPECT_TRUE(error_of([&] { TableWriter(folder_ / "no" / "x.parquet", {}); }).says(ErrorKind::kIo, "No such file"));
}

}  // namespace
}  // namespace strake::data::table_writer_test
