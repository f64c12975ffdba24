#pragma once

#include <ostream>
#include <string>

#include "strake/integrations/ds_config.h"
#include "strake/models/model.h"
#include "strake/training/stepper.h"
#include "strake/training/training_flops.h"

namespace strake::tasks {

// DeepSpeed's flops_profiler: what a step computed, in all and by block. Blocks are the modules, and products what is
// counted (training/training_flops.h), of all ranks.
std::string flops_profile(const models::Model& model, const training::StepReport& step,
                          const integrations::DsFlopsProfiler& options, training::Recomputation recomputation);

// To the file that the options name, whose folder is created, or else to `out`. Error (kIo).
void write_flops_profile(const std::string& profile, const integrations::DsFlopsProfiler& options, std::ostream& out);

}  // namespace strake::tasks
