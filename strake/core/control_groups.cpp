#include "strake/core/control_groups.h"

#include <fstream>
#include <string>

namespace strake {

namespace fs = std::filesystem;

std::vector<ControlGroup> control_groups(std::string_view controller, const fs::path& root,
                                         const fs::path& membership) {
  std::vector<ControlGroup> groups;
  const auto add = [&](ControlGroup group, const fs::path& below) {
    groups.push_back(group);
    for (const fs::path& part : below.relative_path()) {
      if (part == "..") return;
      group.folder /= part;
      groups.push_back(group);
    }
  };
  const std::string wanted = "," + std::string(controller) + ",";
  // Lines "hierarchy:controllers:path"; version 2 is "0::path".
  std::ifstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path below(line.substr(second + 1));
    if (controllers == ",,") add({.folder = root, .is_version_2 = true}, below);
    if (controllers.find(wanted) != std::string::npos) add({.folder = root / controller, .is_version_2 = false}, below);
  }
  return groups;
}

}  // namespace strake
