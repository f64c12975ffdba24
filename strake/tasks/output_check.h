#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "strake/scoring/prediction_output.h"

namespace strake::tasks {

// To be called before anything is made or loaded: what is at the output's place must be an output or nothing. Errors
// (kUsage): it is no regular file (a device, a FIFO, a socket); it is, by whatever name or link, a file of the input
// or, unless an earlier job made it, of the model's folder; the input is a folder in which the next start would read
// the output; input files have the names of an output folder's files.
void check_output(const scoring::OutputPlace& place, const std::vector<std::string>& input,
                  const std::filesystem::path& model_folder);

// Of a verb that writes one file. Errors (kUsage): what is at its place is no regular file; it is, by whatever name or
// link, one of `inputs`.
void check_output_file(const std::filesystem::path& file, const std::vector<std::filesystem::path>& inputs);

}  // namespace strake::tasks
