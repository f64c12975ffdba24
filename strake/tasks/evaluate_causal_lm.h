#pragma once

#include "strake/tasks/evaluate.h"

namespace strake::tasks {

// Loss and perplexity of documents, as those of `strake train --task causal-lm`, bit for bit. Errors: kUsage for flags
// of other tasks; kConfig for a checkpoint that lacks weights of the language model; kNumeric for a loss that is not
// finite.
EvaluateReport evaluate_causal_lm(const EvaluateConfig& config, const ScoringPlan& plan);

}  // namespace strake::tasks
