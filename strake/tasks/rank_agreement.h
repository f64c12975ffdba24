#pragma once

#include <filesystem>
#include <optional>

#include "strake/comm/comm.h"
#include "strake/core/json.h"
#include "strake/tasks/train.h"

// Ranks that are processes have read flags, configuration, data and checkpoint each on its own.
namespace strake::tasks {

// find_resume() of rank 0, which the others verify as they see it. Collective.
std::optional<std::filesystem::path> find_resume_together(const TrainConfig& config, comm::Comm& ranks);

// What decides the course of a run: settings as resolved, data, and the checkpoint it goes on from. `fingerprint` is
// that of run_fingerprint(), `evaluation` what how_evaluated() says, or null.
Json course_of_run(const TrainConfig& config, const Json& fingerprint, const Json& evaluation,
                   const std::optional<std::filesystem::path>& resume_from);

// Error (kUsage) on each rank whose values are not those of rank 0, with the first one that differs. Collective.
void require_alike(const Json& own, comm::Comm& ranks);

}  // namespace strake::tasks
