#include <map>
#include <optional>
#include <string>
#include <utility>

#include "strake/core/error.h"
#include "strake/core/json.h"
#include "strake/data/spark_schema_arrow.h"

namespace strake::data {
namespace {

constexpr const char* kSchemaKey = "org.apache.spark.sql.parquet.row.metadata";

std::optional<Json> spark_type(const arrow::DataType& type);

std::optional<Json> spark_field(const arrow::Field& field) {
  const std::optional<Json> type = spark_type(*field.type());
  if (!type) return std::nullopt;
  return Json{{"name", field.name()}, {"type", *type}, {"nullable", field.nullable()}, {"metadata", Json::object()}};
}

std::optional<Json> spark_struct(const arrow::FieldVector& fields) {
  Json members = Json::array();
  for (const auto& field : fields) {
    std::optional<Json> member = spark_field(*field);
    if (!member) return std::nullopt;
    members.push_back(std::move(*member));
  }
  return Json{{"type", "struct"}, {"fields", std::move(members)}};
}

// Of the types that to_arrow() makes.
std::optional<Json> spark_type(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::STRING:
      return Json("string");
    case arrow::Type::FLOAT:
      return Json("float");
    case arrow::Type::INT32:
      return Json("integer");
    case arrow::Type::INT64:
      return Json("long");
    case arrow::Type::STRUCT:
      return spark_struct(type.fields());
    case arrow::Type::LIST: {
      const std::optional<Json> value = spark_type(*type.field(0)->type());
      if (!value) return std::nullopt;
      return Json{{"type", "array"}, {"elementType", *value}, {"containsNull", type.field(0)->nullable()}};
    }
    default:
      return std::nullopt;
  }
}

// Nothing where `text` is no schema of Spark's, or a field has a type that has no name here.
std::optional<Json> schema_of(const std::string& text, const arrow::FieldVector& fields) {
  std::map<std::string, Json> known;
  try {
    const Json schema = parse_json(text, kSchemaKey);
    for (const Json& field : schema.at("fields")) known.emplace(field.at("name").get<std::string>(), field);
  } catch (const Error&) {
    return std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  Json members = Json::array();
  for (const auto& field : fields) {
    const auto found = known.find(field->name());
    std::optional<Json> member = found == known.end() ? spark_field(*field) : found->second;
    if (!member) return std::nullopt;
    members.push_back(std::move(*member));
  }
  return Json{{"type", "struct"}, {"fields", std::move(members)}};
}

}  // namespace

std::shared_ptr<const arrow::KeyValueMetadata> with_spark_schema_of(
    const std::shared_ptr<const arrow::KeyValueMetadata>& metadata, const arrow::FieldVector& fields) {
  const int at = metadata ? metadata->FindKey(kSchemaKey) : -1;
  if (at < 0) return metadata;
  auto changed = metadata->Copy();
  const std::optional<Json> schema = schema_of(metadata->value(at), fields);
  // Without it Spark goes by the types of the file.
  const arrow::Status status = schema ? changed->Set(kSchemaKey, json_text(*schema)) : changed->Delete(at);
  require(status.ok(), ErrorKind::kInternal, "metadata of Spark: {}", status.ToString());
  return changed;
}

}  // namespace strake::data
