#pragma once

#include <optional>
#include <string_view>

namespace strake::cli {

// What to do instead of a flag that people bring along from Transformers' scripts and from launchers,
// "--group_by_length" for one. None for those that nobody is known to bring.
std::optional<std::string_view> hint_for(std::string_view flag);

}  // namespace strake::cli
