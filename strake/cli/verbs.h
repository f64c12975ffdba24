#pragma once

#include <span>
#include <string>
#include <vector>

#include "strake/cli/flags.h"

namespace strake::cli {

struct Verb {
  VerbText text;
  // Arguments after the verb; prints results to standard output.
  void (*run)(const VerbText& text, const std::vector<std::string>& arguments);
};

// Everything strake can do; a new verb is one entry.
std::span<const Verb> verbs();

}  // namespace strake::cli
