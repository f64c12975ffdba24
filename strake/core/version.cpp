#include "strake/core/version.h"

namespace strake {

std::string_view version() { return STRAKE_VERSION; }

}  // namespace strake
