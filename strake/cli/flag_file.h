#pragma once

#include <string>
#include <string_view>
#include <vector>

// The part of TOML that --config files are written in: lines of "key = value", where a value is a string, a number,
// true, false or a list of those. Numbers are kept as they are written: each flag reads its own.
namespace strake::cli {

struct FlagSetting {
  std::string key;
  std::vector<std::string> values;  // at least one
  size_t line = 0;                  // of the file, from 1
};

// Error (kUsage) that begins with `file` and the line for anything else. Keys may be there twice.
std::vector<FlagSetting> read_flag_file(std::string_view text, const std::string& file);

}  // namespace strake::cli
