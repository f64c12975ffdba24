#pragma once

#include <map>
#include <string>

#include "strake/integrations/ds_config.h"

namespace strake::integrations {

struct DsSetting {
  Json value;
  std::string origin;
};

// By canonical key. Holds every honoured key; optimizer and scheduler only if the file has them.
using DsSettings = std::map<std::string, DsSetting>;

// The settings as a DsConfig: types were checked when the file was read.
DsConfig typed_config(const DsSettings& settings);

}  // namespace strake::integrations
