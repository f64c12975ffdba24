#pragma once

#include "strake/tasks/evaluate.h"

namespace strake::tasks {

// Loss and perplexity of documents, as those of `strake train --task causal-lm`, bit for bit. Errors: kUsage for flags
// of other tasks; kConfig for a checkpoint that lacks weights of the language model; kNumeric for a loss that is not
// finite.
EvaluateReport evaluate_causal_lm(const EvaluateConfig& config, const scoring::ScoringPlan& plan);

// Whether --task says masked-lm, which other verbs that score do not know.
bool is_masked_lm(const EvaluateConfig& config);
// The same of a document's masked tokens, as of `strake train --task masked-lm`.
EvaluateReport evaluate_masked_lm(const EvaluateConfig& config);

}  // namespace strake::tasks
