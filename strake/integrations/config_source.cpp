#include "strake/integrations/config_source.h"

#include <filesystem>
#include <optional>

#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/integrations/hjson.h"

namespace strake::integrations {
namespace {

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '-' || c == '+') return 62;
  if (c == '_' || c == '/') return 63;
  return -1;
}

// None unless all of `text` is base64.
std::optional<std::string> decode_base64(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  if (text.empty() || text.size() % 4 == 1) return std::nullopt;
  std::string decoded;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const int digit = base64_digit(c);
    if (digit < 0) return std::nullopt;
    bits = (bits << 6 | static_cast<uint32_t>(digit)) & 0xffffU;
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      decoded += static_cast<char>(bits >> num_bits & 0xffU);
    }
  }
  return decoded;
}

bool starts_object(std::string_view text) { return text.substr(skip_hjson_blank(text, 0)).starts_with('{'); }

bool is_file(const std::string& argument) {
  std::error_code error;  // a base64 argument may be too long for a path
  return std::filesystem::exists(argument, error);
}

}  // namespace

ConfigSource read_config_source(const std::string& argument, const std::string& flag) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  require(argument.size() <= kMaxConfigBytes, ErrorKind::kConfig, "{}: longer than {} bytes", flag, kMaxConfigBytes);
  std::string name = argument;
  std::string text;
  if (starts_object(argument)) {
    name = flag + " (inline)";
    text = argument;
  } else if (is_file(argument)) {
    text = read_file(argument, kMaxConfigBytes);
  } else {
    const std::optional<std::string> decoded = decode_base64(argument);
    require(decoded && starts_object(*decoded), ErrorKind::kConfig,
            "{} '{}' is neither a file that exists nor a JSON object nor base64 of one", flag, printable(argument));
    name = flag + " (base64)";
    text = *decoded;
  }
  require(!text.starts_with("\xff\xfe") && !text.starts_with("\xfe\xff"), ErrorKind::kConfig,
          "{}: found UTF-16, expected UTF-8", name);
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  Json root = parse_json(hjson_to_json(text, name), name);
  require(root.is_object(), ErrorKind::kConfig, "{}: found {}, expected an object", name, root.type_name());
  return {.name = std::move(name), .root = std::move(root)};
}

}  // namespace strake::integrations
