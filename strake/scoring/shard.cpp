#include "strake/scoring/shard.h"

#include <charconv>

#include "strake/core/error.h"

namespace strake::scoring {

Shard Shard::parse(const std::string& text) {
  constexpr int64_t kMost = 99'999;  // what fits into five digits
  Shard shard;
  if (text.empty()) return shard;
  const char* const end = text.data() + text.size();
  const auto [slash, index_error] = std::from_chars(text.data(), end, shard.index);
  const bool has_count = index_error == std::errc() && slash != end && *slash == '/';
  const auto [rest, count_error] = std::from_chars(has_count ? slash + 1 : end, end, shard.count);
  require(has_count && count_error == std::errc() && rest == end, ErrorKind::kUsage,
          "--shard {}: expected index/count, such as 2/8", printable(text));
  require(shard.count >= 1 && shard.count <= kMost && shard.index >= 0 && shard.index < shard.count, ErrorKind::kUsage,
          "--shard {}: the index must be in [0, count), the count in [1, {}]", printable(text), kMost);
  return shard;
}

std::string Shard::suffix() const { return is_all() ? "" : fmt::format("-{:05}-of-{:05}", index, count); }

}  // namespace strake::scoring
