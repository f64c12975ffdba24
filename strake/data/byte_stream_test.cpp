#include "strake/data/byte_stream.h"

#include <arrow/api.h>
#include <arrow/io/compressed.h>
#include <arrow/io/memory.h>
#include <arrow/util/compression.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "strake/data/status_arrow.h"
#include "strake/data/table_reader.h"
#include "strake/data/test_folder.h"

namespace strake::data::byte_stream_test {
namespace {

using arrow::Compression;

std::string compressed(const std::string& text, Compression::type compression) {
  const auto codec = value_of(arrow::util::Codec::Create(compression), "codec");
  const auto sink = value_of(arrow::io::BufferOutputStream::Create(), "buffer");
  const auto stream = value_of(arrow::io::CompressedOutputStream::Make(codec.get(), sink), "stream");
  require_ok(stream->Write(text.data(), std::ssize(text)), "stream");
  require_ok(stream->Close(), "stream");
  return value_of(sink->Finish(), "buffer")->ToString();
}

std::string lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "a line with the number " + std::to_string(i * 7919) + "\n";
  return text;
}

const std::vector<std::pair<std::string, Compression::type>> kKinds{
    {".gz", Compression::GZIP}, {".bz2", Compression::BZ2}, {".zst", Compression::ZSTD}};

class ByteStreamTest : public FolderTest {
 protected:
  // In pieces of many sizes.
  static std::string read_all(const std::filesystem::path& file) {
    const auto stream = open_bytes(file);
    std::string all;
    for (size_t size = 1;; size = size * 3 + 1) {
      std::string piece(size, '\0');
      const size_t found = stream->read(piece.data(), size);
      all.append(piece, 0, found);
      if (found < size) return all;
    }
  }
};

TEST_F(ByteStreamTest, GivesWhatWasCompressed) {
  const std::string text = lines(100'000);
  EXPECT_EQ(read_all(write("plain.txt", text)), text);
  for (const auto& [extension, compression] : kKinds) {
    EXPECT_TRUE(read_all(write("text.txt" + extension, compressed(text, compression))) == text) << extension;
    const std::string twice = compressed(text, compression) + compressed("the end", compression);
    EXPECT_TRUE(read_all(write("two.txt" + extension, twice)) == text + "the end") << extension;
    EXPECT_EQ(read_all(write("none.txt" + extension, compressed("", compression))), "") << extension;
  }
}

TEST_F(ByteStreamTest, NamesWhatIsCutOffDamagedOrOfAnotherKind) {
  for (const auto& [extension, compression] : kKinds) {
    const std::string whole = compressed(lines(1000), compression);
    for (const size_t size : {whole.size() - 1, whole.size() / 2, size_t{3}}) {
      const auto file = write("cut" + extension, whole.substr(0, size));
      EXPECT_TRUE(error_of([&] { read_all(file); }).says(ErrorKind::kData, file.string())) << extension << " " << size;
    }
    std::string damaged = whole;
    const size_t place = compression == Compression::ZSTD ? 0 : whole.size() / 2;  // Arrow writes it no checksum
    damaged[place] = static_cast<char>(~damaged[place]);
    for (const std::string& content : {damaged, std::string("text that is not compressed"), whole + "garbage"}) {
      const auto file = write("bad" + extension, content);
      EXPECT_TRUE(error_of([&] { read_all(file); }).says(ErrorKind::kData, file.string())) << extension;
    }
  }
}

TEST_F(ByteStreamTest, TablesAreReadFromIt) {
  for (const auto& [extension, compression] : kKinds) {
    for (const auto& [kind, text] : {std::pair<std::string, std::string>{"jsonl", R"({"text": "a"})"
                                                                                  "\n"},
                                     {"json", R"({"text": "a"})"},
                                     {"csv", "text\na\n"},
                                     {"tsv", "text\tlabel\na\t1"},
                                     {"txt", "a\n"}}) {
      TableReader reader({.paths = {write(fmt::format("table.{}{}", kind, extension), compressed(text, compression))}});
      const Table table = *reader.next();
      EXPECT_EQ(table.num_rows(), 1) << kind << extension;
      EXPECT_EQ(table.text("text")[0], "a") << kind << extension;
    }
  }
}

TEST_F(ByteStreamTest, FilesOfOtherKindsUnderNamesOfTextAreNamed) {
  const auto refused = [&](const std::string& name, const std::string& content) {
    const auto file = write(name, content);
    return error_of([&] { TableReader({.paths = {file}}).next(); });
  };
  for (const auto& [extension, compression] : kKinds) {
    for (const std::string content : {"text\na\n", ""}) {
      EXPECT_TRUE(refused("a.csv", compressed(content, compression))
                      .says(ErrorKind::kData, "not text: give it a name that ends in .csv" + extension));
    }
    EXPECT_TRUE(refused("a.txt", compressed("a\n", compression)).says(ErrorKind::kData, "a.txt holds "));
  }
  EXPECT_TRUE(
      refused("a.jsonl", std::string("PAR1\x15\x04\x15", 7)).says(ErrorKind::kData, "name that ends in .parquet"));
  for (const std::string header : {"PAR1,BZh9\n1,2\n", "BZh9,PAR1\n1,2\n"}) {
    TableReader reader({.paths = {write("b.csv", header)}});
    EXPECT_EQ(reader.next()->num_rows(), 1) << header;
  }
}

TEST_F(ByteStreamTest, PartsOfNothingHoldNoRowsAmongOthers) {
  write("part-0.json.gz", compressed("", Compression::GZIP));
  write("part-1.json.gz", compressed("{\"text\": \"a\"}\n", Compression::GZIP));
  EXPECT_EQ(TableReader({.paths = {folder_}}).count_rows(), 1);
  const auto alone = folder_ / "part-0.json.gz";
  EXPECT_TRUE(error_of([&] { TableReader({.paths = {alone}}); }).says(ErrorKind::kData, alone.string() + " is empty"));
}

TEST_F(ByteStreamTest, AFileBesideItsCompressedCopyIsNotReadTwice) {
  write("a.csv", "text\na\n");
  write("a.csv.gz", compressed("text\na\n", Compression::GZIP));
  EXPECT_TRUE(error_of([&] { TableReader({.paths = {folder_}}); }).says(ErrorKind::kData, "a.csv and a.csv.gz"));
  EXPECT_EQ(TableReader({.paths = {folder_ / "a.csv.gz"}}).count_rows(), 1);
  write("a.csv.bz2", compressed("text\na\n", Compression::BZ2));
  std::filesystem::remove(folder_ / "a.csv");
  EXPECT_TRUE(error_of([&] { TableReader({.paths = {folder_}}); }).says(ErrorKind::kData, "a.csv.bz2 and a.csv.gz"));
}

TEST_F(ByteStreamTest, CompressedParquetIsOfNoKnownKind) {
  EXPECT_FALSE(known_format("a.parquet.gz"));
  EXPECT_FALSE(known_format("a.gz"));
  EXPECT_EQ(known_format("a.b.JSONL.GZ"), TableFormat::kJsonLines);
}

}  // namespace
}  // namespace strake::data::byte_stream_test
