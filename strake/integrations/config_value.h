#pragma once

#include <string>
#include <variant>

#include "strake/integrations/config_schema.h"

namespace strake::integrations {

// What is wrong with a value, as the rest of a sentence: "found the text \"3\", expected an integer; ...".
struct ValueProblem {
  std::string text;
};

// `value` as the rule's type has it (5e8 becomes 500000000, "CPU" becomes "cpu"), or what is wrong with it.
// For all rules but sections.
std::variant<Json, ValueProblem> check_value(const KeyRule& rule, const Json& value);

// Whether a value of this type turns something on: it is not the default, or for kSwitched, something in it is enabled.
bool is_set(const KeyRule& rule, const Json& value);

}  // namespace strake::integrations
