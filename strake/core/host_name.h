#pragma once

#include <string>

namespace strake {

// This machine's, or container's; "?" if it cannot be told.
std::string host_name();

}  // namespace strake
