#include "strake/data/table_stream.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <arrow/util/key_value_metadata.h>
#include <fcntl.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <utility>
#include <vector>

#include "strake/data/test_folder.h"

namespace strake::data::table_stream_test {
namespace {
namespace fs = std::filesystem;

using Batches = std::vector<std::shared_ptr<arrow::RecordBatch>>;

std::shared_ptr<arrow::RecordBatch> batch_of(const std::vector<std::string>& texts) {
  arrow::StringBuilder builder;
  EXPECT_TRUE(builder.AppendValues(texts).ok());
  const auto schema = arrow::schema({arrow::field("text", arrow::utf8())});
  return arrow::RecordBatch::Make(schema, std::ssize(texts), {builder.Finish().ValueOrDie()});
}

class Descriptor {
 public:
  Descriptor(const fs::path& file, int flags) : descriptor_(::open(file.c_str(), flags | O_CLOEXEC, 0666)) {
    EXPECT_GE(descriptor_, 0) << file;
  }
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  ~Descriptor() { ::close(descriptor_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

class TableStreamTest : public FolderTest {
 protected:
  fs::path write_stream(const Batches& batches) {
    const fs::path file = folder_ / "in.arrows";
    const auto sink = arrow::io::FileOutputStream::Open(file.string()).ValueOrDie();
    const auto writer = arrow::ipc::MakeStreamWriter(sink, batches.front()->schema()).ValueOrDie();
    for (const auto& batch : batches) EXPECT_TRUE(writer->WriteRecordBatch(*batch).ok());
    EXPECT_TRUE(writer->Close().ok());
    return file;
  }
  Batches read_stream(const fs::path& file) {
    const auto reader =
        arrow::ipc::RecordBatchStreamReader::Open(arrow::io::ReadableFile::Open(file.string()).ValueOrDie())
            .ValueOrDie();
    return reader->ToRecordBatches().ValueOrDie();
  }
  Caught read_all(const fs::path& file) {
    return error_of([&] {
      const Descriptor in(file, O_RDONLY);
      const Descriptor out("/dev/null", O_WRONLY);
      TableStream stream(in.get(), out.get(), "input");
      while (stream.next()) {
      }
    });
  }
};

TEST_F(TableStreamTest, BatchesComeBackWithColumnsAddedAlsoEmptyOnes) {
  const fs::path file = write_stream({batch_of({"a", "bc"}), batch_of({}), batch_of({"d"})});
  {
    const Descriptor in(file, O_RDONLY);
    const Descriptor out(folder_ / "out.arrows", O_WRONLY | O_CREAT);
    TableStream stream(in.get(), out.get(), "input");
    const auto lengths = [](const Table& table) {
      std::vector<int32_t> values;
      for (int64_t i = 0; i < table.num_rows(); ++i) {
        values.push_back(static_cast<int32_t>(table.text("text")[i].size()));
      }
      return std::vector<ExtraColumn>{{"length", std::move(values)}};
    };
    stream.begin(stream.no_rows(), lengths(stream.no_rows()));
    std::vector<std::string> places;
    while (const auto table = stream.next()) {
      places.push_back(table->where(1));
      stream.write(*table, lengths(*table));
    }
    stream.finish();
    EXPECT_EQ(places,
              (std::vector<std::string>{"input, batch 0, row 1", "input, batch 1, row 1", "input, batch 2, row 1"}));
  }
  const Batches found = read_stream(folder_ / "out.arrows");
  ASSERT_EQ(found.size(), 3);
  EXPECT_EQ(found[0]->num_rows(), 2);
  EXPECT_EQ(found[1]->num_rows(), 0);
  EXPECT_EQ(found[0]->schema()->ToString(), "text: string\nlength: int32");
  EXPECT_EQ(static_cast<const arrow::Int32Array&>(*found[0]->column(1)).Value(1), 2);
}

TEST_F(TableStreamTest, EachBatchKeepsItsMetadata) {
  const fs::path file = folder_ / "in.arrows";
  {
    const auto sink = arrow::io::FileOutputStream::Open(file.string()).ValueOrDie();
    const auto writer = arrow::ipc::MakeStreamWriter(sink, batch_of({})->schema()).ValueOrDie();
    for (const std::string part : {"0", "1"}) {
      const auto metadata = arrow::key_value_metadata({"part"}, {part});
      EXPECT_TRUE(writer->WriteRecordBatch(*batch_of({"a", part}), metadata).ok());
    }
    EXPECT_TRUE(writer->WriteRecordBatch(*batch_of({"b"})).ok());
    EXPECT_TRUE(writer->Close().ok());
  }
  {
    const Descriptor in(file, O_RDONLY);
    const Descriptor out(folder_ / "out.arrows", O_WRONLY | O_CREAT);
    TableStream stream(in.get(), out.get(), "input");
    stream.begin(stream.no_rows(), {});
    while (const auto table = stream.next()) stream.write(table->select({"text"}), {});
    stream.finish();
  }
  const auto reader = arrow::ipc::RecordBatchStreamReader::Open(
                          arrow::io::ReadableFile::Open((folder_ / "out.arrows").string()).ValueOrDie())
                          .ValueOrDie();
  for (const std::string part : {"0", "1"}) {
    const auto found = reader->ReadNext().ValueOrDie();
    ASSERT_NE(found.custom_metadata, nullptr);
    EXPECT_EQ(found.custom_metadata->ToString(), arrow::key_value_metadata({"part"}, {part})->ToString());
  }
  EXPECT_EQ(reader->ReadNext().ValueOrDie().custom_metadata, nullptr);
}

TEST_F(TableStreamTest, BadOffsetsAndIndicesNameTheirColumn) {
  const auto refused = [&](const std::shared_ptr<arrow::Array>& array) {
    const auto schema = arrow::schema({arrow::field("id", arrow::utf8()), arrow::field("kind", array->type())});
    arrow::StringBuilder ids;
    EXPECT_TRUE(ids.AppendValues(std::vector<std::string>{"a", "b"}).ok());
    return read_all(write_stream({arrow::RecordBatch::Make(schema, 2, {ids.Finish().ValueOrDie(), array})}));
  };
  const auto words = batch_of({"x", "y"})->column(0);
  arrow::Int8Builder indices;
  EXPECT_TRUE(indices.AppendValues({0, 7}).ok());
  const auto type = arrow::dictionary(arrow::int8(), arrow::utf8());
  const auto data = indices.Finish().ValueOrDie()->data()->Copy();
  data->type = type;
  data->dictionary = words->data();
  EXPECT_TRUE(refused(arrow::MakeArray(data)).says(ErrorKind::kData, "input, batch 0, column 'kind': "));
  for (const std::vector<int32_t>& offsets : {std::vector<int32_t>{0, 2, 1}, std::vector<int32_t>{0, 1, 99}}) {
    const auto bad = words->data()->Copy();
    bad->buffers[1] = arrow::Buffer::FromVector(offsets);
    EXPECT_TRUE(refused(arrow::MakeArray(bad)).says(ErrorKind::kData, "input, batch 0, column 'kind': "));
  }
}

TEST_F(TableStreamTest, CutAndDamagedStreamsAreRefused) {
  const fs::path file = write_stream({batch_of({"a text that has some length", "b"})});
  std::ifstream stream(file, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(stream)), {});
  EXPECT_TRUE(read_all(write("text", "id,text\n1,x\n")).says(ErrorKind::kData, "input"));
  EXPECT_TRUE(read_all(write("nothing", "")).says(ErrorKind::kData, "input"));
  EXPECT_TRUE(read_all(write("cut", whole.substr(0, whole.size() - 40))).says(ErrorKind::kData, "input, batch 0"));
  const size_t text = whole.find("a text that");
  ASSERT_NE(text, std::string::npos);
  std::string bad = whole;
  bad[text + 1] = '\xFF';
  EXPECT_TRUE(
      read_all(write("bad", bad)).says(ErrorKind::kData, "input, batch 0, row 0, column 'text', byte offset 1"));
  // Whatever else is changed, nothing worse than an Error may come of it.
  for (size_t byte = 0; byte < whole.size(); ++byte) {
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 0xFF);
    read_all(write("damaged", damaged));
  }
}

TEST_F(TableStreamTest, AStreamWithoutItsEndOrWithMoreBehindItIsRefused) {
  const fs::path file = write_stream({batch_of({"a"}), batch_of({"b"})});
  std::ifstream stream(file, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(stream)), {});
  EXPECT_FALSE(read_all(write("whole", whole)).kind);
  for (const size_t cut : {1, 4, 7, 8}) {
    EXPECT_TRUE(read_all(write("cut", whole.substr(0, whole.size() - cut))).says(ErrorKind::kData, "input")) << cut;
  }
  EXPECT_TRUE(
      read_all(write("cut", whole.substr(0, whole.size() - 8))).says(ErrorKind::kData, "without its end marker"));
  for (const std::string& more : {whole, std::string("x"), std::string(8, '\0')}) {
    EXPECT_TRUE(read_all(write("more", whole + more)).says(ErrorKind::kData, "bytes behind the end of the stream"));
  }
}

TEST_F(TableStreamTest, APipeThatStaysOpenBehindTheEndIsNoError) {
  const fs::path file = write_stream({batch_of({"a"})});
  std::ifstream stream(file, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(stream)), {});
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor in(ends[0]);
  const Descriptor feeder(ends[1]);
  const Descriptor out("/dev/null", O_WRONLY);
  ASSERT_EQ(::write(feeder.get(), whole.data(), whole.size()), static_cast<ssize_t>(whole.size()));
  TableStream tables(in.get(), out.get(), "input");
  EXPECT_EQ(tables.next()->num_rows(), 1);
  EXPECT_FALSE(tables.next());
}

TEST_F(TableStreamTest, InterruptEndsANextThatWaits) {
  const fs::path file = write_stream({batch_of({"a"})});
  std::ifstream stream(file, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(stream)), {});
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor in(ends[0]);
  const Descriptor feeder(ends[1]);  // stays open: there may always be more
  const Descriptor out("/dev/null", O_WRONLY);
  ASSERT_EQ(::write(feeder.get(), whole.data(), whole.size() - 8), static_cast<ssize_t>(whole.size() - 8));
  TableStream tables(in.get(), out.get(), "input");
  EXPECT_EQ(tables.next()->num_rows(), 1);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    tables.interrupt();
  });
  EXPECT_TRUE(error_of([&] { tables.next(); }).says(ErrorKind::kData, "interrupted"));
  later.join();
}

TEST_F(TableStreamTest, AReaderThatHasGoneIsAnError) {
  std::signal(SIGPIPE, SIG_IGN);
  const Descriptor in(write_stream({batch_of({"a"})}), O_RDONLY);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const Descriptor out(ends[1]);
  TableStream stream(in.get(), out.get(), "input");
  stream.begin(stream.no_rows(), {});
  EXPECT_TRUE(error_of([&] {
                stream.write(*stream.next(), {});
              }).says(ErrorKind::kIo, "output of input: cannot write: Broken pipe"));
}

}  // namespace
}  // namespace strake::data::table_stream_test
