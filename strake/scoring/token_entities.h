#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "strake/data/table_writer.h"
#include "strake/rows/text_rows.h"
#include "strake/scoring/scoring_task.h"

namespace strake::scoring {

// What Transformers' token-classification pipeline makes of logits [T, labels], of the tokens of rows [begin, end) of
// `rows`, which must have places. Tokens that the tokenizer added and the label "O" are left out. With kSimple
// neighbouring tokens of one label are an entity, named without its B- or I-, whose score is their mean; a B- begins
// another one. The strategies that join words first give the tokens of a word one label and score; they need
// Places::kWithContinuations. Of lists of words each word that has a token is one, with its whole label, also "O".
data::SpanRows find_entities(const rows::EncodedRows& rows, int64_t begin, int64_t end, const at::Tensor& logits,
                             const EntityRules& rules);

// A row's entities as numbers: how many, then label, score and place of each. `rules` are those that found them.
void append_numbers(const std::vector<data::LabelledSpan>& entities, const EntityRules& rules,
                    std::vector<float>& numbers);
// And back: `read` fills a span with the next numbers. kData for numbers that are of other rules.
std::vector<data::LabelledSpan> read_entities(const std::function<void(std::span<float>)>& read,
                                              const EntityRules& rules);

}  // namespace strake::scoring
