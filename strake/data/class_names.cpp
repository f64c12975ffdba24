#include "strake/data/class_names.h"

#include <arrow/api.h>
#include <arrow/util/key_value_metadata.h>

#include <set>

#include "strake/core/error.h"
#include "strake/core/json.h"
#include "strake/data/table_arrow.h"

namespace strake::data {
namespace {

constexpr const char* kFeaturesKey = "huggingface";

bool holds_integers(const arrow::DataType& type) {
  return arrow::is_integer(is_any_list(type) ? type.field(0)->type()->id() : type.id());
}

const Json* member(const Json* object, const std::string& key) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(key);
  return found == object->end() ? nullptr : &*found;
}

// Lists are {"feature": ..., "_type": "Sequence" or "List"}, or [...] of earlier versions.
const Json* feature_in_list(const Json* feature) {
  if (feature != nullptr && feature->is_array() && feature->size() == 1) return &feature->front();
  const Json* const inside = member(feature, "feature");
  return inside != nullptr ? inside : feature;
}

// Null for what is no JSON: others may have the key, too.
Json parsed(const std::string& text) {
  try {
    return parse_json(text, kFeaturesKey);
  } catch (const Error&) {
    return {};
  }
}

std::vector<std::string> names_of(const Json& features, const std::string& column) {
  const Json* const feature = feature_in_list(member(member(member(&features, "info"), "features"), column));
  const Json* const type = member(feature, "_type");
  const Json* const names = member(feature, "names");
  const bool is_class = type != nullptr && *type == "ClassLabel" && names != nullptr && names->is_array();
  if (!is_class) return {};
  std::vector<std::string> found;
  for (const Json& name : *names) {
    if (!name.is_string()) return {};
    found.push_back(name.get<std::string>());
  }
  return found;
}

}  // namespace

std::vector<std::string> class_names(const Table& table, const std::string& column) {
  const Table::Content& content = table.content();
  const int index = column_index(*content.batch->schema(), column, content.file);
  const int at = content.metadata == nullptr ? -1 : content.metadata->FindKey(kFeaturesKey);
  if (at < 0 || !holds_integers(*content.batch->column(index)->type())) return {};
  const std::string& text = content.metadata->value(at);
  require(text.size() <= kMaxConfigBytes, ErrorKind::kData, "{}: its metadata '{}' has {} bytes, expected at most {}",
          content.file, kFeaturesKey, text.size(), kMaxConfigBytes);
  std::vector<std::string> names = names_of(parsed(text), column);
  std::set<std::string_view> seen;
  for (const std::string& name : names) {
    if (!seen.insert(name).second) {
      fail(ErrorKind::kData, "{}: its metadata '{}' gives column '{}' two classes called '{}'", content.file,
           kFeaturesKey, printable(column), printable(name));
    }
  }
  return names;
}

}  // namespace strake::data
