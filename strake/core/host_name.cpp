#include "strake/core/host_name.h"

#include <unistd.h>

#include <array>

namespace strake {

std::string host_name() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return host.data();
}

}  // namespace strake
