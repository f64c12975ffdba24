#include "strake/data/joint_schema_arrow.h"

#include <arrow/api.h>
#include <arrow/util/key_value_metadata.h>

#include <utility>

#include "strake/data/status_arrow.h"
#include "strake/data/table_arrow.h"

namespace strake::data {
namespace {

using FieldPtr = std::shared_ptr<arrow::Field>;
using TypePtr = std::shared_ptr<arrow::DataType>;

FieldPtr joint_field(const FieldPtr& first, const arrow::Field& other);

TypePtr joint_struct(const arrow::DataType& first, const arrow::DataType& other) {
  if (first.num_fields() != other.num_fields()) return nullptr;
  arrow::FieldVector fields;
  for (int i = 0; i < first.num_fields(); ++i) {
    if (first.field(i)->name() != other.field(i)->name()) return nullptr;
    fields.push_back(joint_field(first.field(i), *other.field(i)));
    if (!fields.back()) return nullptr;
  }
  return arrow::struct_(fields);
}

bool is_bytes(const arrow::DataType& type) {
  return type.id() == arrow::Type::BINARY || type.id() == arrow::Type::LARGE_BINARY ||
         type.id() == arrow::Type::BINARY_VIEW;
}

bool is_list(const arrow::DataType& type) {
  return type.id() == arrow::Type::LIST || type.id() == arrow::Type::LARGE_LIST;
}

// What it is stored as, of an extension (UUID, JSON).
TypePtr plain_type(const TypePtr& type) {
  if (type->id() != arrow::Type::EXTENSION) return type;
  return static_cast<const arrow::ExtensionType&>(*type).storage_type();
}

TypePtr unpacked_type(const TypePtr& type) {
  if (type->id() != arrow::Type::DICTIONARY) return type;
  return static_cast<const arrow::DictionaryType&>(*type).value_type();
}

// Null: there is none. Dictionaries, whose indices are as wide as a file's number of values asks for, are unpacked.
TypePtr joint_type(const TypePtr& first, const TypePtr& other) {
  if (first->Equals(*other) || other->id() == arrow::Type::NA) return first;
  if (first->id() == arrow::Type::NA) return other;
  if ((is_text(*first) && is_text(*other)) || (is_bytes(*first) && is_bytes(*other))) return first;
  if ((first->id() == arrow::Type::EXTENSION) != (other->id() == arrow::Type::EXTENSION)) {
    return joint_type(plain_type(first), plain_type(other));
  }
  if (first->id() == arrow::Type::DICTIONARY || other->id() == arrow::Type::DICTIONARY) {
    return joint_type(unpacked_type(first), unpacked_type(other));
  }
  if (first->id() == arrow::Type::STRUCT && other->id() == arrow::Type::STRUCT) return joint_struct(*first, *other);
  if (!is_list(*first) || !is_list(*other)) return nullptr;
  const FieldPtr value = joint_field(first->field(0), *other->field(0));
  if (!value) return nullptr;
  return first->id() == arrow::Type::LIST ? arrow::list(value) : arrow::large_list(value);
}

// As a null among the values is, so is JSON text among strings: nobody may take it for something else.
FieldPtr joint_field(const FieldPtr& first, const arrow::Field& other) {
  const TypePtr type = joint_type(first->type(), other.type());
  if (!type) return nullptr;
  const bool any_null = first->type()->id() == arrow::Type::NA || other.type()->id() == arrow::Type::NA;
  FieldPtr field = first->WithType(type)->WithNullable(first->nullable() || other.nullable() || any_null);
  if (!is_json(other)) return field;
  return field->WithMergedMetadata(arrow::key_value_metadata({kJsonFieldKey}, {"1"}));
}

bool have_same_names(const arrow::Schema& a, const arrow::Schema& b) { return a.field_names() == b.field_names(); }

std::string text_of(const arrow::DataType& type) {
  constexpr size_t kLongest = 300;
  return printable(type.ToString(), kLongest);
}

std::shared_ptr<arrow::Array> with_type(const std::shared_ptr<arrow::Array>& array, const TypePtr& type,
                                        const std::string& file) {
  if (array->type_id() == arrow::Type::NA) return value_of(arrow::MakeArrayOfNull(type, array->length()), file);
  if (!array->type()->Equals(*type)) {
    return cast(array->type_id() == arrow::Type::DICTIONARY ? unpacked(array, file) : array, type, file);
  }
  auto data = array->data()->Copy();  // names and metadata of what is inside may be others
  data->type = type;
  return arrow::MakeArray(data);
}

// Casts nothing, but fails where rows would.
void require_castable(const std::shared_ptr<arrow::Schema>& from, const std::shared_ptr<arrow::Schema>& to,
                      const std::string& file) {
  with_schema(empty_batch(from, file), to, file);
}

}  // namespace

std::shared_ptr<arrow::Schema> joint_schema(const std::shared_ptr<arrow::Schema>& first,
                                            const std::shared_ptr<arrow::Schema>& other, const JointFiles& files) {
  const auto require_one = [&](bool holds, const FieldPtr& field, const std::string& problem) {
    require(holds, ErrorKind::kData, "{}: its columns differ from those of {}: column '{}' {}", files.other,
            files.first, printable(field->name()), problem);
  };
  for (const FieldPtr& field : other->fields()) {
    require_one(!first->GetAllFieldIndices(field->name()).empty(), field, "is not in " + files.first);
  }
  const bool is_by_place = have_same_names(*first, *other);  // where names may occur twice
  arrow::FieldVector fields;
  for (int i = 0; i < first->num_fields(); ++i) {
    const FieldPtr& field = first->field(i);
    const std::vector<int> found = is_by_place ? std::vector<int>{i} : other->GetAllFieldIndices(field->name());
    require_one(!found.empty(), field, "is not in " + files.other);
    const bool is_unique = is_by_place || found.size() + first->GetAllFieldIndices(field->name()).size() == 2;
    require_one(is_unique, field, "occurs several times");
    const FieldPtr& its = other->field(found.front());
    fields.push_back(joint_field(field, *its));
    require_one(fields.back() != nullptr, field,
                fmt::format("has the type {}, not {}", text_of(*its->type()), text_of(*field->type())));
  }
  auto joint = arrow::schema(std::move(fields), first->metadata());
  require_castable(first, joint, files.first);
  require_castable(other, joint, files.other);
  return joint;
}

std::shared_ptr<arrow::RecordBatch> with_schema(const std::shared_ptr<arrow::RecordBatch>& batch,
                                                const std::shared_ptr<arrow::Schema>& schema, const std::string& file) {
  if (batch->schema()->Equals(*schema, /*check_metadata=*/true)) return batch;
  const bool is_by_place = have_same_names(*batch->schema(), *schema);
  arrow::ArrayVector columns;
  for (int i = 0; i < schema->num_fields(); ++i) {
    const arrow::Field& field = *schema->field(i);
    const int index = is_by_place ? i : column_index(*batch->schema(), field.name(), file);
    columns.push_back(with_type(batch->column(index), field.type(), file));
  }
  return arrow::RecordBatch::Make(schema, batch->num_rows(), std::move(columns));
}

}  // namespace strake::data
