#include "strake/core/error.h"

#include <string_view>
#include <utility>

#include "strake/core/utf8.h"

namespace strake {
namespace {

// Bytes of the character that `text` begins with; 0 where it begins with none, or with a control character.
size_t length_of_character(std::string_view text) {
  const Utf8Part part = first_utf8_part(text);
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const bool is_control = byte(0) < 0x20 || byte(0) == 0x7F || (byte(0) == 0xC2 && part.length == 2 && byte(1) < 0xA0);
  return part.is_character && !is_control ? part.length : 0;
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
