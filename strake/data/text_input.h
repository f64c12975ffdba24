#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "strake/data/byte_stream.h"
#include "strake/data/text_encoding.h"

namespace strake::data {

// No line or CSV record may be longer: an unclosed quote would else pull the whole file into memory.
inline constexpr size_t kMaxRecordBytes = size_t{64} << 20;

// Of a record. Each takes a share of memory for every row.
inline constexpr size_t kMostColumns = 16'384;

// Refuses what is missing, not a regular file (kIo) or empty (kData).
void require_data_file(const std::filesystem::path& file);

// Bytes of a text file, which may be compressed, as UTF-8, in blocks, in constant memory. A byte order mark at the
// start is dropped. Bytes that are not text in the given encoding are an Error (kData) that names file, line, offset in
// the text and byte. Errors as of ByteStream.
class TextInput {
 public:
  TextInput(const std::filesystem::path& file, TextEncoding encoding);

  // Appends about `bytes` more bytes of decoded text; false at the end of the file.
  bool append_to(std::string& buffer, size_t bytes = kBlockBytes);

  const std::string& name() const { return name_; }

  static constexpr size_t kBlockBytes = size_t{1} << 20;

 private:
  void decode(std::string_view block, std::string& buffer);
  [[noreturn]] void refuse(std::string_view block, size_t position) const;

  std::string name_;
  TextEncoding encoding_;
  std::unique_ptr<ByteStream> stream_;
  std::string block_;         // raw bytes; starts with a character that the last block cut
  int64_t block_offset_ = 0;  // of block_ in the file
  int64_t lines_before_ = 0;  // line ends before block_
  bool at_end_ = false;
};

// Lines of a TextInput, ended by '\n' (the last one may lack it).
class LineInput {
 public:
  explicit LineInput(TextInput input) : input_(std::move(input)) {}

  // Without its '\n' and one '\r' before it; valid until the next call.
  std::optional<std::string_view> next();
  // Number of the line last returned, from 1.
  int64_t line() const { return line_; }
  const std::string& name() const { return input_.name(); }

 private:
  TextInput input_;
  std::string buffer_;
  size_t begin_ = 0;
  int64_t line_ = 0;
};

}  // namespace strake::data
