#include "strake/data/text_input.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "strake/core/error.h"
#include "strake/core/utf8.h"

namespace strake::data {
namespace fs = std::filesystem;
namespace {

// First bytes of files of other kinds. No text begins so: gzip and Zstandard have bytes that are no UTF-8, the others
// are longer than what a text could begin with by chance.
struct Magic {
  std::string_view bytes;
  std::string_view kind;
  std::string_view extension;
};
constexpr Magic kMagics[] = {{"\x1F\x8B\x08", "gzip", ".gz"},
                             {"BZh?1AY&SY", "bzip2", ".bz2"},
                             {"BZh?\x17\x72\x45\x38\x50\x90", "bzip2", ".bz2"},  // of nothing
                             {"\x28\xB5\x2F\xFD", "Zstandard", ".zst"},
                             {"PAR1\x15", "Parquet", ".parquet"}};

bool begins_as(std::string_view text, std::string_view magic) {
  if (text.size() < magic.size()) return false;
  return std::ranges::equal(magic, text.substr(0, magic.size()), [](char m, char t) { return m == '?' || m == t; });
}

void refuse_other_kinds(std::string_view text, const std::string& file) {
  require(!text.starts_with("\xFF\xFE") && !text.starts_with("\xFE\xFF"), ErrorKind::kData,
          "{} is UTF-16 text (byte order mark at its start); convert it to UTF-8 first", file);
  for (const auto& [bytes, kind, extension] : kMagics) {
    require(!begins_as(text, bytes), ErrorKind::kData, "{} holds {}, not text: give it a name that ends in {}{}", file,
            kind, kind == "Parquet" ? "" : fs::path(file).extension().string(), extension);
  }
}

}  // namespace

void require_data_file(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  require(fs::exists(status), ErrorKind::kIo, "{}: no such file", file.string());
  require(fs::is_regular_file(status), ErrorKind::kIo, "{} is not a regular file", file.string());
  const auto size = fs::file_size(file, error);
  require(!error, ErrorKind::kIo, "cannot read {}: {}", file.string(), error.message());
  require(size > 0, ErrorKind::kData, "{} is empty", file.string());
}

TextInput::TextInput(const fs::path& file, TextEncoding encoding) : name_(file.string()), encoding_(encoding) {
  require_data_file(file);
  stream_ = open_bytes(file);
}

void TextInput::refuse(std::string_view block, size_t position) const {
  const auto line = lines_before_ + 1 + std::ranges::count(block.substr(0, position), '\n');
  fail(ErrorKind::kData, "{}, line {}, byte offset {}: {}", name_, line, block_offset_ + static_cast<int64_t>(position),
       describe_bad_byte(static_cast<unsigned char>(block[position]), encoding_));
}

bool TextInput::append_to(std::string& buffer, size_t bytes) {
  if (at_end_) return false;
  const size_t kept = block_.size();
  block_.resize(kept + bytes);
  const size_t found = stream_->read(block_.data() + kept, bytes);
  block_.resize(kept + found);
  at_end_ = found < bytes;
  const bool first = block_offset_ == 0 && kept == 0;
  if (first) {
    require(found > 0, ErrorKind::kData, "{} is empty", name_);  // what it was compressed from
    refuse_other_kinds(block_, name_);
  }
  const bool has_mark = first && block_.starts_with("\xEF\xBB\xBF");
  if (has_mark) {
    block_.erase(0, 3);
    block_offset_ = 3;
  }
  decode(block_, buffer);
  return true;
}

void TextInput::decode(std::string_view block, std::string& buffer) {
  size_t used = block.size();
  if (encoding_ == TextEncoding::kUtf8) {
    const Utf8Check check = check_utf8(block);
    if (check.valid < block.size() && (at_end_ || !check.incomplete)) refuse(block, check.valid);
    used = check.valid;
    buffer.append(block.substr(0, used));
  } else if (const auto bad = append_decoded(block, encoding_, buffer)) {
    refuse(block, *bad);
  }
  lines_before_ += std::ranges::count(block.substr(0, used), '\n');
  block_offset_ += static_cast<int64_t>(used);
  block_.erase(0, used);
}

std::optional<std::string_view> LineInput::next() {
  size_t searched = begin_;
  size_t end = buffer_.find('\n', searched);
  while (end == std::string::npos) {
    searched = buffer_.size() - begin_;
    buffer_.erase(0, begin_);
    begin_ = 0;
    require(searched <= kMaxRecordBytes, ErrorKind::kData, "{}, line {}: longer than {} bytes", name(), line_ + 1,
            kMaxRecordBytes);
    if (!input_.append_to(buffer_)) {
      if (buffer_.empty()) return std::nullopt;
      end = buffer_.size();
      break;
    }
    end = buffer_.find('\n', searched);
  }
  std::string_view line = std::string_view(buffer_).substr(begin_, end - begin_);
  begin_ = std::min(end + 1, buffer_.size());
  ++line_;
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace strake::data
