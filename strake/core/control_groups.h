#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace strake {

struct ControlGroup {
  std::filesystem::path folder;
  bool is_version_2 = true;
};

// The control groups by which containers and batch systems limit what this process gets of a resource ("memory",
// "cpu"): of either version, its own and all that those lie in. They may not exist: in a container, what lies above it
// is not to be seen. `root` and `membership` are for tests. Source: cgroups(7).
std::vector<ControlGroup> control_groups(std::string_view controller,
                                         const std::filesystem::path& root = "/sys/fs/cgroup",
                                         const std::filesystem::path& membership = "/proc/self/cgroup");

}  // namespace strake
