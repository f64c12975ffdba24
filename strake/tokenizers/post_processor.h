#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strake/tokenizers/encoding.h"

namespace strake::tokenizers {

// An element of a template: one of the texts, or a special token.
struct TemplatePart {
  enum class Kind { kFirst, kSecond, kSpecial } kind;
  int32_t type_id = 0;
  std::vector<int32_t> ids{};         // of a special token, which may be several
  std::vector<std::string> tokens{};  // as long as ids
};
using Template = std::vector<TemplatePart>;

// What is put around the tokens of the texts. BertProcessing, RobertaProcessing, TemplateProcessing and ByteLevel of
// tokenizer.json are all of this form.
struct PostProcessor {
  struct TrimOffsets {
    bool add_prefix_space = true;  // a single leading space at the start of the text was added, so it is not trimmed
  };
  std::vector<TrimOffsets>
      trims;  // byte level, one after the other: white space at the ends of a token leaves its offsets
  Template single{{TemplatePart::Kind::kFirst, 0}};
  Template pair{{TemplatePart::Kind::kFirst, 0}, {TemplatePart::Kind::kSecond, 1}};
  bool types_of_windows = false;  // the template's type ids hold for overflow windows too (RobertaProcessing)

  const Template& of(bool is_pair) const { return is_pair ? pair : single; }
  // Number of special tokens in a template.
  int64_t added(bool is_pair) const;
  // Every token is of type 0 from now on.
  void drop_types();
  // `second` may be null. The result takes the contents of both.
  Encoding process(Encoding& first, Encoding* second, bool add_special_tokens) const;
};

}  // namespace strake::tokenizers
