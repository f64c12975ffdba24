#include "strake/core/error.h"

#include <string_view>
#include <utility>

namespace strake {
namespace {

// Bytes of the character of UTF-8 that `text` begins with (table 3-7 of the Unicode standard); 0 where it begins with
// none, or with a control character.
size_t length_of_character(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0);
  if (first < 0x80) return first < 0x20 || first == 0x7F ? 0 : 1;
  const size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  const unsigned least = first == 0xC2 ? 0xA0 : first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (length == 0 || byte(1) < least || byte(1) > most) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
    case ErrorKind::kConfig:
      return 2;
    case ErrorKind::kData:
      return 3;
    case ErrorKind::kIo:
      return 4;
    case ErrorKind::kComm:
      return 5;
    case ErrorKind::kNumeric:
      return 6;
    case ErrorKind::kInternal:
      return 70;
    case ErrorKind::kInterrupted:
      return 75;
  }
  return 70;
}

const char* to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return "usage";
    case ErrorKind::kConfig:
      return "configuration";
    case ErrorKind::kData:
      return "data";
    case ErrorKind::kIo:
      return "file";
    case ErrorKind::kComm:
      return "communication";
    case ErrorKind::kNumeric:
      return "numeric";
    case ErrorKind::kInternal:
      return "internal";
    case ErrorKind::kInterrupted:
      return "interruption";
  }
  return "internal";
}

std::string error_line(ErrorKind kind, std::string_view text) {
  return fmt::format("strake: {} error: {}\n", to_string(kind), text);
}

Error::Error(ErrorKind kind, std::string message, std::source_location where)
    : kind_(kind), text_(std::move(message)), where_(where) {}

Error& Error::add_context(const std::string& context) {
  text_ += " (" + context + ")";
  return *this;
}

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (i >= max_bytes) return out + "...";
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t length = length_of_character(text.substr(i));
    if (length == 0) {
      out += fmt::format("\\x{:02x}", byte);
      ++i;
    } else {
      out += text.substr(i, length);
      i += length;
    }
  }
  return out;
}

}  // namespace strake
