#include "strake/tokenizers/decoder.h"

#include <string_view>
#include <utility>

#include "strake/tokenizers/byte_pair.h"
#include "strake/tokenizers/unicode.h"

namespace strake::tokenizers {
namespace {

std::string replace_all(const std::string& text, std::string_view from, std::string_view to) {
  std::string replaced;
  size_t done = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, done)) {
    replaced.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  return replaced.append(text, done);
}

// The decoder of WordPiece, in tokenizers, has one contraction more than transformers.
std::string clean_up(std::string text) { return replace_all(clean_up_spaces(std::move(text)), " do not", " don't"); }

std::string decode_with(const NoDecoder&, const std::vector<std::string>& tokens) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) text.append(i == 0 ? "" : " ").append(tokens[i]);
  return text;
}

std::string decode_with(const WordPieceDecoder& options, const std::vector<std::string>& tokens) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string token = tokens[i];
    if (i > 0 && token.starts_with(options.prefix)) {
      token.erase(0, options.prefix.size());
    } else if (i > 0) {
      token.insert(0, " ");
    }
    text += options.cleanup ? clean_up(std::move(token)) : token;
  }
  return text;
}

std::string decode_with(const ByteLevelDecoder&, const std::vector<std::string>& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) {
    const size_t start = bytes.size();
    for (size_t at = 0; at < token.size();) {
      const auto byte = byte_of_alphabet(next_char(token, at));
      if (!byte) {  // not written in the alphabet: taken as it is
        bytes.resize(start);
        bytes += token;
        break;
      }
      bytes += static_cast<char>(*byte);
    }
  }
  return to_valid_utf8(bytes);
}

}  // namespace

std::string clean_up_spaces(std::string text) {
  using namespace std::string_view_literals;
  constexpr std::pair<std::string_view, std::string_view> kReplacements[] = {
      {" ."sv, "."sv},     {" ?"sv, "?"sv},   {" !"sv, "!"sv},   {" ,"sv, ","sv},     {" ' "sv, "'"sv},
      {" n't"sv, "n't"sv}, {" 'm"sv, "'m"sv}, {" 's"sv, "'s"sv}, {" 've"sv, "'ve"sv}, {" 're"sv, "'re"sv}};
  for (const auto& [from, to] : kReplacements) text = replace_all(text, from, to);
  return text;
}

std::string decode(const Decoder& decoder, const std::vector<std::string>& tokens) {
  return std::visit([&tokens](const auto& chosen) { return decode_with(chosen, tokens); }, decoder);
}

}  // namespace strake::tokenizers
