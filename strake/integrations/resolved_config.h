#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "strake/core/error.h"
#include "strake/integrations/ds_config_resolve.h"

// For tests of what a ds_config.json resolves to.
namespace strake::integrations {

inline ResolvedDsConfig resolved(const std::string& config, const ResolveInputs& inputs) {
  return resolve(parse_ds_config(config), inputs);
}

// The message of the refusal, or "accepted".
inline std::string refusal(const std::string& config, const ResolveInputs& inputs = {.options = {}}) {
  try {
    resolved(config, inputs);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
    return error.what();
  }
  return "accepted";
}

inline const DsRow& row(const ResolvedDsConfig& config, const std::string& key) {
  const auto found = std::ranges::find(config.rows, key, &DsRow::key);
  if (found == config.rows.end()) fail(ErrorKind::kInternal, "no row {}", key);
  return *found;
}

}  // namespace strake::integrations
