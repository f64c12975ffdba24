#pragma once

#include <string_view>

namespace strake {

std::string_view version();  // "0.1.0"

}  // namespace strake
