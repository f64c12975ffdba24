#pragma once

#include <iosfwd>
#include <string>

namespace strake::tasks {

// Texts to tokens or back, one JSON object a line: to look into a tokenizer, or to compare it with another.
struct TokenizeConfig {
  std::string tokenizer;
  std::string input;
  std::string output;  // empty: standard output
  bool decode = false;
  bool skip_special_tokens = false;
  int64_t max_seq_length = 0;
  int64_t stride = 0;

  template <typename Self, typename Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("tokenizer", self.tokenizer, "model folder, tokenizer.json or vocab.txt");
    visit("input", self.input,
          "JSONL: objects with text and optionally text_pair, or strings; with --decode objects with input_ids, or "
          "lists");
    visit("output", self.output, "JSONL file to write; empty: standard output");
    visit("decode", self.decode, "ids to text");
    visit("skip_special_tokens", self.skip_special_tokens, "with --decode: leave special tokens out");
    visit("max_seq_length", self.max_seq_length,
          "truncate to so many tokens, windows under \"overflowing\"; 0: do not");
    visit("stride", self.stride, "tokens that neighbouring windows share");
  }
  void validate() const;
};

// Returns the number of lines.
int64_t tokenize(const TokenizeConfig& config, std::ostream& standard_output);

}  // namespace strake::tasks
