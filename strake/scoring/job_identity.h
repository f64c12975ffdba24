#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "strake/core/json.h"

namespace strake::scoring {

// What the rows that `strake predict` writes depend on is a flat JSON object, the job's identity: an unfinished job
// keeps it, and so does the manifest of a finished one.

// Adds of every input file where it is, "input file 00000": "path, modified 1763759000.000000001", and what it holds,
// "input content 00000": "123 bytes, crc32c 0a1b2c3d" (the checksum is of its first and last 64 KiB).
void add_files(Json& identity, const std::vector<std::filesystem::path>& files);

struct IdentityDifference {
  std::string key;
  std::string before;
  std::string now;
};

// The first key in which they differ, empty if in none.
IdentityDifference difference_of(const Json& before, const Json& now);
// The same for two shards of one job, which may be run by machines that have their own copies of the input.
IdentityDifference difference_of_shards(Json other, Json own);

}  // namespace strake::scoring
