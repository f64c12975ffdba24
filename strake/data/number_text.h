#pragma once

#include <algorithm>
#include <string_view>

namespace strake::data {

// What pandas reads of a number in CSV: no white space around it, no plus sign before it. Empty: there is none.
inline std::string_view plain_number(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  text = text.substr(0, text.find_last_not_of(kSpace) + 1);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  return text;
}

}  // namespace strake::data
