#include "strake/data/text_encoding.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "strake/core/error.h"

namespace strake::data {
namespace {

// Unicode's mapping file CP1252.TXT for bytes 80 to 9F; 0 where it defines none.
constexpr std::array<uint16_t, 32> kCp1252 = {0x20AC, 0,      0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021,
                                              0x02C6, 0x2030, 0x0160, 0x2039, 0x0152, 0,      0x017D, 0,
                                              0,      0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                              0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0,      0x017E, 0x0178};

void append_utf8(uint32_t code, std::string& out) {  // code < 0x10000
  if (code < 0x800) {
    out.push_back(static_cast<char>(0xC0 | code >> 6));
  } else {
    out.push_back(static_cast<char>(0xE0 | code >> 12));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
  }
  out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
}

size_t ascii_prefix(std::string_view text) {
  size_t i = 0;
  for (uint64_t word = 0; i + sizeof(word) <= text.size(); i += sizeof(word)) {
    std::memcpy(&word, text.data() + i, sizeof(word));
    if ((word & 0x8080808080808080U) != 0) break;
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
  return i;
}

// Length of a character by its first byte and the allowed range of its second (Unicode 15, table 3-7); length 0: none.
struct LeadByte {
  size_t length;
  unsigned char second_min;
  unsigned char second_max;
};

LeadByte lead_byte(unsigned char byte) {
  if (byte < 0xC2 || byte > 0xF4) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0)
    return {3, static_cast<unsigned char>(byte == 0xE0 ? 0xA0 : 0x80),
            static_cast<unsigned char>(byte == 0xED ? 0x9F : 0xBF)};
  return {4, static_cast<unsigned char>(byte == 0xF0 ? 0x90 : 0x80),
          static_cast<unsigned char>(byte == 0xF4 ? 0x8F : 0xBF)};
}

}  // namespace

TextEncoding parse_encoding(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  constexpr std::pair<std::string_view, TextEncoding> kNames[] = {
      {"utf-8", TextEncoding::kUtf8},          {"utf8", TextEncoding::kUtf8},      {"cp1252", TextEncoding::kCp1252},
      {"windows-1252", TextEncoding::kCp1252}, {"latin-1", TextEncoding::kLatin1}, {"latin1", TextEncoding::kLatin1},
      {"iso-8859-1", TextEncoding::kLatin1}};
  for (const auto& [known, encoding] : kNames) {
    if (lower == known) return encoding;
  }
  fail(ErrorKind::kUsage, "unknown encoding '{}'; known are utf-8, cp1252 and latin-1", printable(name));
}

Utf8Check check_utf8(std::string_view text) {
  size_t i = 0;
  while (true) {
    i += ascii_prefix(text.substr(i));
    if (i == text.size()) return {.valid = i, .incomplete = false};
    const LeadByte lead = lead_byte(static_cast<unsigned char>(text[i]));
    if (lead.length == 0) return {.valid = i, .incomplete = false};
    for (size_t k = 1; k < lead.length; ++k) {
      if (i + k == text.size()) return {.valid = i, .incomplete = true};
      const auto byte = static_cast<unsigned char>(text[i + k]);
      const bool good = k == 1 ? byte >= lead.second_min && byte <= lead.second_max : (byte & 0xC0) == 0x80;
      if (!good) return {.valid = i, .incomplete = false};
    }
    i += lead.length;
  }
}

std::optional<size_t> append_decoded(std::string_view bytes, TextEncoding encoding, std::string& out) {
  for (size_t i = 0; i < bytes.size();) {
    const size_t plain = ascii_prefix(bytes.substr(i));
    out.append(bytes.substr(i, plain));
    i += plain;
    if (i == bytes.size()) break;
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const bool mapped = encoding == TextEncoding::kCp1252 && byte < 0xA0;
    const uint32_t code = mapped ? kCp1252[byte - 0x80U] : byte;
    if (code == 0) return i;
    append_utf8(code, out);
    ++i;
  }
  return std::nullopt;
}

std::string describe_bad_byte(unsigned char byte, std::optional<TextEncoding> encoding) {
  if (!encoding) return fmt::format("byte 0x{:02X} is not valid UTF-8, as Arrow's strings must be", byte);
  if (encoding == TextEncoding::kUtf8) {
    return fmt::format("byte 0x{:02X} is not valid UTF-8; if the file is Windows text, pass --encoding cp1252", byte);
  }
  return fmt::format("byte 0x{:02X} does not exist in cp1252; if it is meant literally, pass --encoding latin-1", byte);
}

}  // namespace strake::data
