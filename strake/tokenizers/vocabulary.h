#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace strake::tokenizers {

// Ids above this are refused: they would ask for gigabytes of tables, and no embedding has as many rows.
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 22) - 1;

// Tokens and their ids, both ways. Immutable once filled; safe to share between threads.
class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;
  Vocabulary(const Vocabulary&) = delete;  // by_id_ points into ids_
  Vocabulary& operator=(const Vocabulary&) = delete;

  // A token given twice keeps its last id, as a vocab.txt with equal lines does. Error (kConfig, starting with
  // `source`) for an id outside [0, kMaxTokenId] or one that another token has.
  void add(std::string_view token, int64_t id, const std::string& source);

  std::optional<int32_t> find(std::string_view token) const;
  // Null if no token has this id.
  const std::string* token(int32_t id) const;
  // Number of different tokens.
  size_t size() const { return ids_.size(); }
  // One more than the largest id.
  int32_t id_limit() const { return static_cast<int32_t>(by_id_.size()); }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::vector<const std::string*> by_id_;
};

}  // namespace strake::tokenizers
