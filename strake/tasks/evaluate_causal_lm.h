#pragma once

#include "strake/tasks/evaluate.h"

namespace strake::tasks {

// Whether --task says causal-lm or, without it, the model's config.json is that of a language model.
bool evaluates_language_model(const EvaluateConfig& config);

// Loss and perplexity of documents, as those of `strake train --task causal-lm`, bit for bit. Errors: kUsage for flags
// of other tasks; kConfig for a checkpoint that lacks weights of the language model; kNumeric for a loss that is not
// finite.
EvaluateReport evaluate_causal_lm(const EvaluateConfig& config);

}  // namespace strake::tasks
