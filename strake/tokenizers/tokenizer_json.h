#pragma once

#include <string>
#include <string_view>

#include "strake/core/json.h"
#include "strake/tokenizers/spec.h"

namespace strake::tokenizers {

// Reads the text of a tokenizer.json, in the present form and in the older ones that published files have (no model
// type, merges as "a b"). Of its truncation section the side counts; truncation and padding are asked for per call.
// Errors are kConfig, begin with `source` and name the component that is not supported or the field that is wrong.
TokenizerSpec read_tokenizer_json(std::string_view text, const std::string& source);
TokenizerSpec spec_from_json(const Json& json, const std::string& source);

// Special tokens around texts as BertProcessing and RobertaProcessing put them.
PostProcessor bert_post_processor(const std::pair<std::string, int32_t>& cls,
                                  const std::pair<std::string, int32_t>& sep);
PostProcessor roberta_post_processor(const std::pair<std::string, int32_t>& cls,
                                     const std::pair<std::string, int32_t>& sep);

// "right" or "left", in any case of the first letter. `source` says where that stands.
Direction read_direction(const std::string& side, const std::string& source);

}  // namespace strake::tokenizers
