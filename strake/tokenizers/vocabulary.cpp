#include "strake/tokenizers/vocabulary.h"

#include "strake/core/error.h"

namespace strake::tokenizers {

void Vocabulary::add(std::string_view token, int64_t id, const std::string& source) {
  if (id < 0 || id > kMaxTokenId) {
    fail(ErrorKind::kConfig, "{}: id {} of token '{}' is outside [0, {}]", source, id, printable(token), kMaxTokenId);
  }
  const auto at = static_cast<size_t>(id);
  if (at >= by_id_.size()) by_id_.resize(at + 1);
  if (by_id_[at] != nullptr && *by_id_[at] != token) {
    fail(ErrorKind::kConfig, "{}: tokens '{}' and '{}' both have id {}", source, printable(*by_id_[at]),
         printable(token), id);
  }
  const auto found = ids_.insert_or_assign(std::string(token), static_cast<int32_t>(id)).first;
  by_id_[at] = &found->first;
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* Vocabulary::token(int32_t id) const {
  return id >= 0 && id < id_limit() ? by_id_[static_cast<size_t>(id)] : nullptr;
}

}  // namespace strake::tokenizers
