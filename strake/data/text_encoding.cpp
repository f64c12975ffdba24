#include "strake/data/text_encoding.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "strake/core/error.h"
#include "strake/core/utf8.h"

namespace strake::data {
namespace {

// Unicode's mapping file CP1252.TXT for bytes 80 to 9F; 0 where it defines none.
constexpr std::array<uint16_t, 32> kCp1252 = {0x20AC, 0,      0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021,
                                              0x02C6, 0x2030, 0x0160, 0x2039, 0x0152, 0,      0x017D, 0,
                                              0,      0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                              0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0,      0x017E, 0x0178};

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
