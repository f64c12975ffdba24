#include "strake/data/byte_stream.h"

#include <arrow/io/compressed.h>
#include <arrow/io/file.h>
#include <arrow/util/compression.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "strake/data/status_arrow.h"

namespace strake::data {
namespace fs = std::filesystem;
namespace {

constexpr std::pair<std::string_view, arrow::Compression::type> kCompressions[] = {
    {".gz", arrow::Compression::GZIP}, {".bz2", arrow::Compression::BZ2}, {".zst", arrow::Compression::ZSTD}};

std::optional<arrow::Compression::type> compression_of(const fs::path& file) {
  const std::string extension = lower_extension(file);
  const auto* const found = std::ranges::find(kCompressions, extension, [](const auto& known) { return known.first; });
  return found == std::end(kCompressions) ? std::nullopt : std::optional(found->second);
}

class PlainBytes final : public ByteStream {
 public:
  explicit PlainBytes(const fs::path& file) : name_(file.string()), stream_(file, std::ios::binary) {
    require(stream_.is_open(), ErrorKind::kIo, "cannot open {}: {}", name_, std::strerror(errno));
  }
  size_t read(char* to, size_t size) override {
    stream_.read(to, static_cast<std::streamsize>(size));
    require(!stream_.bad(), ErrorKind::kIo, "cannot read {}: {}", name_, std::strerror(errno));
    return static_cast<size_t>(stream_.gcount());
  }

 private:
  std::string name_;
  std::ifstream stream_;
};

class DecompressedBytes final : public ByteStream {
 public:
  DecompressedBytes(const fs::path& file, arrow::Compression::type compression)
      : name_(file.string()), codec_(value_of(arrow::util::Codec::Create(compression), name_)) {
    auto compressed = value_of(arrow::io::ReadableFile::Open(name_), name_);
    stream_ = value_of(arrow::io::CompressedInputStream::Make(codec_.get(), std::move(compressed)), name_);
  }
  size_t read(char* to, size_t size) override {
    size_t done = 0;
    while (done < size) {
      const int64_t found = value_of(stream_->Read(static_cast<int64_t>(size - done), to + done), name_);
      if (found == 0) break;
      done += static_cast<size_t>(found);
    }
    return done;
  }

 private:
  std::string name_;
  std::unique_ptr<arrow::util::Codec> codec_;
  std::shared_ptr<arrow::io::CompressedInputStream> stream_;
};

}  // namespace

std::string lower_extension(const fs::path& file) {
  std::string extension = file.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension;
}

bool is_compressed(const fs::path& file) { return compression_of(file).has_value(); }

std::unique_ptr<ByteStream> open_bytes(const fs::path& file) {
  if (const auto compression = compression_of(file)) return std::make_unique<DecompressedBytes>(file, *compression);
  return std::make_unique<PlainBytes>(file);
}

}  // namespace strake::data
