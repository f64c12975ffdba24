#include "strake/monitor/closing_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace strake::monitor {

void print_closing_table(std::ostream& out, const std::string& title, std::span<const TableRow> rows) {
  size_t name_width = 0;
  size_t value_width = 0;
  for (const auto& [name, value] : rows) {
    name_width = std::max(name_width, name.size());
    value_width = std::max(value_width, value.size());
  }
  out << fmt::format("***** {} *****\n", title);
  for (const auto& [name, value] : rows) {
    out << fmt::format("  {:<{}} = {:>{}}\n", name, name_width, value, value_width);
  }
  out.flush();
}

}  // namespace strake::monitor
