#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace strake::data {

// How bytes of a text file are to be read. Inside strake all text is UTF-8.
enum class TextEncoding { kUtf8, kCp1252, kLatin1 };

// From "utf-8", "cp1252" or "latin-1" (and the usual spellings utf8, windows-1252, latin1, iso-8859-1);
// Error (kUsage) listing the names otherwise.
TextEncoding parse_encoding(std::string_view name);

// Appends `bytes` as UTF-8. Returns the position of the first byte that the encoding does not define (81, 8D, 8F, 90
// and 9D of cp1252, as in Python), or nullopt. Not for kUtf8, which needs no decoding.
std::optional<size_t> append_decoded(std::string_view bytes, TextEncoding encoding, std::string& out);

// "byte 0x92 is not valid UTF-8; if the file is Windows text, pass --encoding cp1252"; without an encoding there is no
// such flag.
std::string describe_bad_byte(unsigned char byte, std::optional<TextEncoding> encoding);

}  // namespace strake::data
