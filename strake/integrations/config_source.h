#pragma once

#include <string>

#include "strake/core/json.h"

namespace strake::integrations {

struct ConfigSource {
  std::string name;  // for messages: the path, or "--deepspeed (inline)"
  Json root;         // an object
};

// The JSON object that a flag such as --deepspeed names, as DeepSpeed and Transformers read it: the path of a file,
// inline JSON (starts with '{'), or URL-safe base64 of JSON (what DeepSpeed's launcher passes on). HJSON is as good.
// Errors: kIo for a file that cannot be read; kConfig for the rest, among it duplicate keys.
ConfigSource read_config_source(const std::string& argument, const std::string& flag);

}  // namespace strake::integrations
