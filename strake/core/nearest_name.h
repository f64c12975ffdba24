#pragma once

#include <span>
#include <string>
#include <string_view>

namespace strake {

// Of ASCII letters.
std::string lower_case(std::string text);

// The candidate with the smallest edit distance to `name`, or "" if none is near enough to be a likely misspelling.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

// "; did you mean 'x'?" or "".
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace strake
