#pragma once

#include <string>
#include <string_view>
#include <vector>

// What --config files are: TOML whose values are strings, numbers, true, false or lists of those. Values are given as
// text: each flag reads its own.
namespace strake::cli {

struct FlagSetting {
  std::string key;
  std::vector<std::string> values;  // at least one
  size_t line = 0;                  // of the file, from 1
};

// In the order of the file. Error (kUsage) that begins with `file` and the line for anything else.
std::vector<FlagSetting> read_flag_file(std::string_view text, const std::string& file);

}  // namespace strake::cli
