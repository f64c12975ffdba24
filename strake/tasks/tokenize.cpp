#include "strake/tasks/tokenize.h"

#include <iterator>
#include <ostream>
#include <sstream>

#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/json.h"
#include "strake/data/text_input.h"
#include "strake/tasks/output_check.h"
#include "strake/tokenizers/tokenizer.h"

namespace strake::tasks {
namespace {

using tokenizers::Encoding;

// As Json writes them, which takes many times as long for numbers.
void append_value(int32_t value, std::string& out) { fmt::format_to(std::back_inserter(out), "{}", value); }
void append_value(const std::pair<int32_t, int32_t>& range, std::string& out) {
  fmt::format_to(std::back_inserter(out), "[{},{}]", range.first, range.second);
}
void append_value(const std::string& text, std::string& out) { out.append(Json(text).dump()); }

template <typename Values>
void append_list(const char* name, const Values& values, std::string& out) {
  fmt::format_to(std::back_inserter(out), "\"{}\":[", name);
  for (const auto& value : values) {
    append_value(value, out);
    out += ',';
  }
  if (!values.empty()) out.pop_back();
  out += ']';
}

// Value by value: a Json of a long text takes some seventy times its size.
void append_json(const Encoding& encoding, std::string& out) {
  out += '{';
  append_list("attention_mask", encoding.attention_mask, out);
  append_list("input_ids", encoding.ids, out += ',');
  append_list("offsets", encoding.offsets, out += ',');
  if (!encoding.overflowing.empty()) {
    out += ",\"overflowing\":[";
    for (const Encoding& window : encoding.overflowing) {
      append_json(window, out);
      out += ',';
    }
    out.back() = ']';
  }
  append_list("token_type_ids", encoding.type_ids, out += ',');
  append_list("tokens", encoding.tokens, out += ',');
  out += '}';
}

// What JSON gets wrong counts as configuration elsewhere; here it is data.
template <typename Read>
auto as_data(Read&& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(ErrorKind::kData, error.what(), error.where());
  }
}

std::string required_text(const Json& line, const char* key, const std::string& where) {
  return as_data([&] { return get_required<std::string>(line, key, where); });
}

std::string encode_line(const Json& line, const tokenizers::Tokenizer& tokenizer, const TokenizeConfig& config,
                        const std::string& where) {
  const std::string text = line.is_string() ? line.get<std::string>() : required_text(line, "text", where);
  std::optional<std::string> pair;
  if (line.is_object() && line.contains("text_pair") && !line["text_pair"].is_null()) {
    pair = required_text(line, "text_pair", where);
  }
  tokenizers::EncodeOptions options;
  if (config.max_seq_length > 0) {
    options.truncation = tokenizers::Truncation{.max_length = config.max_seq_length, .stride = config.stride};
  }
  std::string out;
  append_json(tokenizer.encode(text, pair ? std::optional<std::string_view>(*pair) : std::nullopt, options), out);
  return out;
}

std::string decode_line(const Json& line, const tokenizers::Tokenizer& tokenizer, const TokenizeConfig& config,
                        const std::string& where) {
  const Json ids = line.is_array() ? line : as_data([&] { return get_required<Json>(line, "input_ids", where); });
  require(ids.is_array(), ErrorKind::kData, "{}: input_ids is not a list", where);
  std::vector<int32_t> values;
  for (const Json& id : ids) {
    require(id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() <= INT32_MAX, ErrorKind::kData,
            "{}: {} is not a token id", where, printable(id.dump()));
    values.push_back(id.get<int32_t>());
  }
  return json_text(Json{{"text", tokenizer.decode(values, {.skip_special_tokens = config.skip_special_tokens})}});
}

}  // namespace

void TokenizeConfig::validate() const {
  require(!tokenizer.empty(), ErrorKind::kUsage, "--tokenizer names no folder or file");
  require(!input.empty(), ErrorKind::kUsage, "--input names no file");
  require(max_seq_length >= 0, ErrorKind::kUsage, "--max_seq_length {} is negative", max_seq_length);
  require(stride >= 0, ErrorKind::kUsage, "--stride {} is negative", stride);
  require(stride == 0 || max_seq_length > 0, ErrorKind::kUsage, "--stride {} needs --max_seq_length", stride);
  require(decode || !skip_special_tokens, ErrorKind::kUsage, "--skip_special_tokens needs --decode");
  require(!decode || max_seq_length == 0, ErrorKind::kUsage, "--decode and --max_seq_length {} contradict each other",
          max_seq_length);
}

int64_t tokenize(const TokenizeConfig& config, std::ostream& standard_output) {
  config.validate();
  const auto tokenizer = tokenizers::Tokenizer::load(config.tokenizer);
  data::LineInput input(data::TextInput(config.input, data::TextEncoding::kUtf8));
  if (!config.output.empty()) check_output_file(config.output, {config.input});
  std::optional<AtomicFile> file;
  if (!config.output.empty()) file.emplace(config.output);
  while (const auto line = input.next()) {
    const std::string where = fmt::format("{}:{}", config.input, input.line());
    const Json parsed = as_data([&] { return parse_json(*line, where); });
    const std::string text =
        config.decode ? decode_line(parsed, *tokenizer, config, where) : encode_line(parsed, *tokenizer, config, where);
    if (file) {
      file->write(text);
      file->write("\n");
    } else {
      standard_output << text << '\n';
    }
  }
  if (file) file->commit();
  return input.line();
}

}  // namespace strake::tasks
