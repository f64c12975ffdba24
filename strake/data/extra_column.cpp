#include <arrow/api.h>

#include <utility>

#include "strake/data/extra_column_arrow.h"
#include "strake/data/spark_schema_arrow.h"
#include "strake/data/status_arrow.h"
#include "strake/data/table_arrow.h"

namespace strake::data {
namespace {

template <typename Builder, typename Value>
std::shared_ptr<arrow::Array> flat(const std::vector<Value>& values, const std::string& file) {
  Builder builder;
  require_ok(builder.AppendValues(values), file);
  return value_of(builder.Finish(), file);
}

template <typename Builder, typename Value>
std::shared_ptr<arrow::Array> lists(const std::vector<std::vector<Value>>& rows, const std::string& file) {
  auto values = std::make_shared<Builder>();
  arrow::ListBuilder lists(arrow::default_memory_pool(), values);
  for (const std::vector<Value>& row : rows) {
    require_ok(lists.Append(), file);
    require_ok(values->AppendValues(row), file);
  }
  return value_of(lists.Finish(), file);
}

template <typename Builder, typename Value>
std::shared_ptr<arrow::Array> lists_with_nulls(const OptionalLists<Value>& rows, const std::string& file) {
  auto values = std::make_shared<Builder>();
  arrow::ListBuilder lists(arrow::default_memory_pool(), values);
  for (const std::vector<std::optional<Value>>& row : rows) {
    require_ok(lists.Append(), file);
    for (const std::optional<Value>& value : row) {
      require_ok(value ? values->Append(*value) : values->AppendNull(), file);
    }
  }
  return value_of(lists.Finish(), file);
}

struct Converter {
  const ExtraColumn& column;
  const std::string& file;

  std::shared_ptr<arrow::Array> operator()(const std::vector<std::string>& values) const {
    return flat<arrow::StringBuilder>(values, file);
  }
  std::shared_ptr<arrow::Array> operator()(const std::vector<float>& values) const {
    return flat<arrow::FloatBuilder>(values, file);
  }
  std::shared_ptr<arrow::Array> operator()(const std::vector<std::optional<float>>& values) const {
    arrow::FloatBuilder builder;
    for (const std::optional<float>& value : values) {
      require_ok(value ? builder.Append(*value) : builder.AppendNull(), file);
    }
    return value_of(builder.Finish(), file);
  }
  std::shared_ptr<arrow::Array> operator()(const std::vector<int32_t>& values) const {
    return flat<arrow::Int32Builder>(values, file);
  }
  std::shared_ptr<arrow::Array> operator()(const std::vector<int64_t>& values) const {
    return flat<arrow::Int64Builder>(values, file);
  }
  std::shared_ptr<arrow::Array> operator()(const FloatRows& rows) const {
    const auto count = static_cast<int64_t>(rows.values.size());
    require(rows.width > 0 && count % rows.width == 0, ErrorKind::kInternal, "column '{}': {} values in rows of {}",
            column.name, count, rows.width);
    auto values = std::make_shared<arrow::FloatBuilder>();
    arrow::ListBuilder lists(arrow::default_memory_pool(), values);
    for (int64_t begin = 0; begin < count; begin += rows.width) {
      require_ok(lists.Append(), file);
      require_ok(values->AppendValues(rows.values.data() + begin, rows.width), file);
    }
    return value_of(lists.Finish(), file);
  }
  std::shared_ptr<arrow::Array> operator()(const std::vector<std::vector<int32_t>>& rows) const {
    return lists<arrow::Int32Builder>(rows, file);
  }
  std::shared_ptr<arrow::Array> operator()(const TextLists& rows) const {
    return lists<arrow::StringBuilder>(rows, file);
  }
  std::shared_ptr<arrow::Array> operator()(const OptionalLists<std::string>& rows) const {
    return lists_with_nulls<arrow::StringBuilder>(rows, file);
  }
  std::shared_ptr<arrow::Array> operator()(const OptionalLists<float>& rows) const {
    return lists_with_nulls<arrow::FloatBuilder>(rows, file);
  }
  std::shared_ptr<arrow::Array> operator()(const SpanLists& lists_of_spans) const {
    auto* const pool = arrow::default_memory_pool();
    auto labels = std::make_shared<arrow::StringBuilder>();
    auto scores = std::make_shared<arrow::FloatBuilder>();
    auto begins = std::make_shared<arrow::Int32Builder>();
    auto ends = std::make_shared<arrow::Int32Builder>();
    const auto type =
        arrow::struct_({arrow::field(lists_of_spans.label_name, arrow::utf8()), arrow::field("score", arrow::float32()),
                        arrow::field("start", arrow::int32()), arrow::field("end", arrow::int32())});
    auto spans = std::make_shared<arrow::StructBuilder>(
        type, pool, std::vector<std::shared_ptr<arrow::ArrayBuilder>>{labels, scores, begins, ends});
    arrow::ListBuilder lists(pool, spans);
    for (const std::vector<LabelledSpan>& row : lists_of_spans.rows) {
      require_ok(lists.Append(), file);
      for (const LabelledSpan& span : row) {
        require_ok(spans->Append(), file);
        require_ok(labels->Append(span.label), file);
        require_ok(scores->Append(span.score), file);
        require_ok(begins->Append(span.begin), file);
        require_ok(ends->Append(span.end), file);
      }
    }
    return value_of(lists.Finish(), file);
  }
};

}  // namespace

std::shared_ptr<arrow::Array> to_arrow(const ExtraColumn& column, const std::string& file) {
  return std::visit(Converter{column, file}, column.values);
}

std::shared_ptr<arrow::RecordBatch> with_columns(const Table& table, std::span<const ExtraColumn> extra,
                                                 const std::string& output) {
  const Table::Content& content = table.content();
  arrow::FieldVector fields = content.batch->schema()->fields();
  arrow::ArrayVector columns = content.batch->columns();
  for (const ExtraColumn& column : extra) {
    for (const auto& field : fields) {
      require(field->name() != column.name, ErrorKind::kData,
              "{}: the column '{}' that would be added already exists; rename or drop it", content.file,
              printable(column.name));
    }
    columns.push_back(to_arrow(column, output));
    require(columns.back()->length() == table.num_rows(), ErrorKind::kInternal,
            "{}: column '{}' has {} values for {} rows", output, column.name, columns.back()->length(),
            table.num_rows());
    fields.push_back(arrow::field(column.name, columns.back()->type()));
  }
  const auto metadata = with_spark_schema_of(content.batch->schema()->metadata(), fields);
  auto schema = arrow::schema(std::move(fields), metadata);
  return arrow::RecordBatch::Make(std::move(schema), table.num_rows(), std::move(columns));
}

}  // namespace strake::data
