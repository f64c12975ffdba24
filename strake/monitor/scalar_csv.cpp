#include "strake/monitor/scalar_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "strake/core/file.h"

namespace strake::monitor {
namespace fs = std::filesystem;

ScalarCsv::ScalarCsv(fs::path folder) : folder_(std::move(folder)) { strake::create_directories(folder_); }

void ScalarCsv::write(std::span<const Scalar> scalars, int64_t step) {
  for (const Scalar& scalar : scalars) {
    auto found = files_.find(scalar.tag);
    std::string lines;  // as Python's csv ends them
    if (found == files_.end()) {
      std::string name = scalar.tag;
      std::ranges::replace_if(name, [](char c) { return c == '/' || c == ' '; }, '_');
      const fs::path path = folder_ / (name + ".csv");
      found = files_.emplace(scalar.tag, AppendedFile(path, AppendedFile::Beginning::kAsItIs)).first;
      if (fs::file_size(path) == 0) {
        lines = fmt::format("step,{}\r\n", scalar.tag.substr(scalar.tag.rfind('/') + 1));
      }
    }
    found->second.append(lines + fmt::format("{},{}\r\n", step, scalar.value));
  }
}

}  // namespace strake::monitor
