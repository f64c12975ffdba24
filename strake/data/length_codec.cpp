#include "strake/data/length_codec.h"

#include <arrow/util/base64.h>
#include <arrow/util/compression.h>

#include <charconv>
#include <limits>
#include <string_view>

#include "strake/data/status_arrow.h"

namespace strake::data {
namespace {

constexpr int kMostBytesPerLength = 5;  // LEB128 of 32 bits

std::unique_ptr<arrow::util::Codec> zstd(const std::string& source) {
  return value_of(arrow::util::Codec::Create(arrow::Compression::ZSTD), source);
}

}  // namespace

std::string encode_lengths(std::span<const int32_t> lengths) {
  std::string plain;
  for (const int32_t length : lengths) {
    auto rest = static_cast<uint32_t>(length);
    for (; rest >= 0x80; rest >>= 7) plain.push_back(static_cast<char>(rest | 0x80));
    plain.push_back(static_cast<char>(rest));
  }
  const auto codec = zstd("sequence lengths");
  const auto* bytes = reinterpret_cast<const uint8_t*>(plain.data());
  const auto size = static_cast<int64_t>(plain.size());
  std::string packed(static_cast<size_t>(codec->MaxCompressedLen(size, bytes)), '\0');
  const int64_t packed_size = value_of(
      codec->Compress(size, bytes, static_cast<int64_t>(packed.size()), reinterpret_cast<uint8_t*>(packed.data())),
      "sequence lengths");
  packed.resize(static_cast<size_t>(packed_size));
  return fmt::format("{}:{}", size, arrow::util::base64_encode(packed));
}

std::vector<int32_t> decode_lengths(const std::string& text, int64_t count, const std::string& source) {
  require(count >= 0 && count <= kMostLengths, ErrorKind::kData, "{}: lengths of {} sequences", source, count);
  int64_t plain_size = -1;
  const auto [colon, error] = std::from_chars(text.data(), text.data() + text.size(), plain_size);
  const bool sound = error == std::errc() && colon != text.data() + text.size() && *colon == ':' &&
                     plain_size >= count && plain_size <= count * kMostBytesPerLength;
  require(sound, ErrorKind::kData, "{}: sequence lengths do not belong to {} sequences", source, count);
  const std::string packed =
      value_of(arrow::util::base64_decode(std::string_view(colon + 1, text.data() + text.size())), source);
  std::string plain(static_cast<size_t>(plain_size), '\0');
  const int64_t size = value_of(
      zstd(source)->Decompress(static_cast<int64_t>(packed.size()), reinterpret_cast<const uint8_t*>(packed.data()),
                               plain_size, reinterpret_cast<uint8_t*>(plain.data())),
      source);
  plain.resize(static_cast<size_t>(size));
  std::vector<int32_t> lengths;
  lengths.reserve(static_cast<size_t>(count));
  uint64_t value = 0;
  int shift = 0;
  for (const char c : plain) {
    value |= uint64_t{static_cast<unsigned char>(c) & 0x7FU} << shift;
    shift += 7;
    if ((static_cast<unsigned char>(c) & 0x80U) == 0) {
      require(value <= static_cast<uint64_t>(std::numeric_limits<int32_t>::max()), ErrorKind::kData,
              "{}: a length of {} tokens", source, value);
      require(std::ssize(lengths) < count, ErrorKind::kData, "{}: more than {} sequence lengths for as many sequences",
              source, count);
      lengths.push_back(static_cast<int32_t>(value));
      value = 0;
      shift = 0;
    }
    require(shift <= 28, ErrorKind::kData, "{}: sequence lengths are damaged", source);
  }
  require(shift == 0 && static_cast<int64_t>(lengths.size()) == count, ErrorKind::kData,
          "{}: {} sequence lengths for {} sequences", source, lengths.size(), count);
  return lengths;
}

}  // namespace strake::data
