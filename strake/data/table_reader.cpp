#include "strake/data/table_reader.h"

#include <arrow/api.h>

#include <algorithm>
#include <utility>

#include "strake/core/error.h"
#include "strake/data/joint_schema_arrow.h"
#include "strake/data/row_source_arrow.h"
#include "strake/data/status_arrow.h"
#include "strake/data/table_arrow.h"
#include "strake/data/text_input.h"

namespace strake::data {
namespace fs = std::filesystem;
namespace {

std::unique_ptr<RowSource> open_source(TableFormat format, const RowSourceOptions& options) {
  switch (format) {
    case TableFormat::kParquet:
      return open_parquet(options);
    case TableFormat::kCsv:
      return open_delimited(options, ',');
    case TableFormat::kTsv:
      return open_delimited(options, '\t');
    case TableFormat::kJsonLines:
      return open_json_lines(options);
    case TableFormat::kText:
      return open_text(options);
  }
  fail(ErrorKind::kInternal, "unknown table format");
}

RowSourceOptions options_of(const TableSource& source, const fs::path& file) {
  return {
      .file = file, .encoding = source.encoding, .rows_per_chunk = source.rows_per_chunk, .columns = source.columns};
}

// Of all columns of a file: names alone, for messages that list them.
void require_columns(const std::vector<std::string>& columns, const std::vector<std::string>& names,
                     const std::string& file) {
  arrow::FieldVector fields;
  for (const std::string& name : names) fields.push_back(arrow::field(name, arrow::null()));
  const arrow::Schema schema(std::move(fields));
  for (const std::string& column : columns) column_index(schema, column, file);
}

// Of JSON lines: the columns that were null alone in all rows looked at.
std::vector<int> columns_without_type(const arrow::Schema& schema) {
  std::vector<int> found;
  for (int i = 0; i < schema.num_fields(); ++i) {
    if (schema.field(i)->type()->id() == arrow::Type::NA) found.push_back(i);
  }
  return found;
}

std::shared_ptr<arrow::Schema> with_fields(const std::shared_ptr<arrow::Schema>& schema, const std::vector<int>& places,
                                           const arrow::Schema& other) {
  arrow::FieldVector fields = schema->fields();
  for (const int place : places) {
    auto& field = fields[static_cast<size_t>(place)];
    if (const auto found = other.GetFieldByName(field->name())) field = found;
  }
  return arrow::schema(std::move(fields), schema->metadata());
}

void require_range(const TableSource& source) {
  require(source.first_row >= 0 && source.end_row >= source.first_row, ErrorKind::kConfig,
          "rows [{}, {}) were asked for", source.first_row, source.end_row);
}

}  // namespace

std::vector<std::string> names_of_columns(const TableSource& source) {
  const fs::path file = expand_paths(source.paths, source.format).front();
  return open_source(source.format ? *source.format : format_of(file), options_of(source, file))->names();
}

struct TableReader::State {
  TableFormat format = TableFormat::kParquet;
  std::unique_ptr<RowSource> rows;        // of `file`
  std::shared_ptr<arrow::Schema> schema;  // of every file
  std::vector<int> selected;              // columns to keep of `schema`; empty means all
  std::optional<int64_t> num_rows;        // of all files
  size_t file = 0;
  int64_t first_row = 0;
  int64_t first_row_in_file = 0;
  bool is_begun = false;  // the file
  bool any = false;

  // Leaves the first file open.
  void compare(const TableSource& source, const std::vector<fs::path>& files) {
    rows = open_source(format, options_of(source, files.front()));
    schema = rows->schema();
    num_rows = rows->num_rows();
    const std::string first = files.front().string();
    require_columns(source.columns, rows->names(), first);
    for (const std::string& column : source.columns) selected.push_back(column_index(*schema, column, first));
    if (format == TableFormat::kJsonLines) look_for_types(source, files);
    for (size_t i = 1; i < files.size(); ++i) {
      require_data_file(files[i]);
      if (format == TableFormat::kJsonLines || format == TableFormat::kText) continue;
      const auto other = open_source(format, options_of(source, files[i]));
      require_columns(source.columns, other->names(), files[i].string());
      schema = joint_schema(schema, other->schema(), {.first = first, .other = files[i].string()});
      if (num_rows) *num_rows += other->num_rows().value_or(0);
    }
    rows->give_as(schema);
  }

  // Rows are all that tells the types of JSON lines: where the first ones have null alone, those of other files may
  // have values. A column without any holds text.
  void look_for_types(const TableSource& source, const std::vector<fs::path>& files) {
    constexpr size_t kMostFiles = 32;
    std::vector<int> left = columns_without_type(*schema);
    for (size_t i = 1; !left.empty() && i < std::min(files.size(), kMostFiles); ++i) {
      schema = with_fields(schema, left, *open_source(format, options_of(source, files[i]))->schema());
      left = columns_without_type(*schema);
    }
    arrow::FieldVector texts;
    for (const int place : left) texts.push_back(arrow::field(schema->field(place)->name(), arrow::utf8()));
    schema = with_fields(schema, left, arrow::Schema(std::move(texts)));
  }

  void begin_file(const TableSource& source, const std::vector<fs::path>& files) {
    if (!rows) {
      RowSourceOptions options = options_of(source, files[file]);
      options.schema = schema;
      rows = open_source(format, options);
      const JointFiles pair{.first = files.front().string(), .other = files[file].string()};
      require(joint_schema(schema, rows->schema(), pair)->Equals(*schema), ErrorKind::kData,
              "{}: it has changed since it was compared with the other files", pair.other);
      rows->give_as(schema);
    }
    first_row_in_file = rows->skip(std::max<int64_t>(0, source.first_row - first_row));
    first_row += first_row_in_file;
    is_begun = true;
  }

  void end_file() {
    rows.reset();
    is_begun = false;
    ++file;
  }

  // Leaves of `found` what is within [first_row, end_row) of the source.
  void cut(SourceRows& found, const TableSource& source) {
    const int64_t rows_found = found.batch->num_rows();
    const int64_t begin = std::clamp<int64_t>(source.first_row - first_row, 0, rows_found);
    const int64_t end = std::clamp<int64_t>(source.end_row - first_row, begin, rows_found);
    first_row += begin;
    first_row_in_file += begin;
    if (begin == 0 && end == rows_found) return;
    found.batch = found.batch->Slice(begin, end - begin);
    if (!found.lines.empty()) found.lines = {found.lines.begin() + begin, found.lines.begin() + end};
  }

  Table take_table(SourceRows found, const std::string& name) {
    const int64_t count = found.batch->num_rows();
    Table table = make_table(std::move(found), name);
    first_row += count;
    first_row_in_file += count;
    any = true;
    return table;
  }

  Table make_table(SourceRows found, const std::string& name) const {
    auto content = std::make_shared<Table::Content>();
    content->batch = found.batch->ReplaceSchemaMetadata(schema->metadata());
    if (!selected.empty()) content->batch = value_of(content->batch->SelectColumns(selected), name);
    content->file = name;
    content->first_row = first_row;
    content->first_row_in_file = first_row_in_file;
    content->lines = std::move(found.lines);
    if (rows) content->metadata = rows->schema()->metadata();
    return Table(std::move(content));
  }
};

TableReader::TableReader(TableSource source)
    : source_(std::move(source)),
      files_(expand_paths(source_.paths, source_.format)),
      state_(std::make_unique<State>()) {
  require(source_.rows_per_chunk > 0, ErrorKind::kConfig, "rows_per_chunk={} must be positive", source_.rows_per_chunk);
  require_range(source_);
  state_->format = source_.format ? *source_.format : format_of(files_.front());
  for (const fs::path& file : files_) {
    require(source_.format || format_of(file) == state_->format, ErrorKind::kUsage,
            "{} and {} are different kinds of files; name one kind", files_.front().string(), file.string());
  }
  state_->compare(source_, files_);
}

TableReader::~TableReader() = default;
TableReader::TableReader(TableReader&&) noexcept = default;
TableReader& TableReader::operator=(TableReader&&) noexcept = default;

std::vector<std::string> TableReader::column_names() const {
  if (!source_.columns.empty()) return source_.columns;
  return state_->schema->field_names();
}

Table TableReader::no_rows() const {
  SourceRows none;
  none.batch = empty_batch(state_->schema, files_.front().string());
  return state_->make_table(std::move(none), files_.front().string());
}

int64_t TableReader::count_rows() const {
  if (state_->num_rows) return *state_->num_rows;
  TableSource none = source_;
  none.first_row = none.end_row = std::numeric_limits<int64_t>::max();
  TableReader reader(none);
  while (reader.next()) continue;
  return reader.state_->first_row;
}

void TableReader::limit_to(int64_t first_row, int64_t end_row) {
  require(!state_->is_begun && state_->file == 0, ErrorKind::kInternal, "rows were read already");
  source_.first_row = first_row;
  source_.end_row = end_row;
  require_range(source_);
}

std::optional<Table> TableReader::next() {
  while (state_->file < files_.size() && state_->first_row < source_.end_row) {
    if (!state_->is_begun) state_->begin_file(source_, files_);
    const std::string name = files_[state_->file].string();
    SourceRows found = state_->rows->next();
    if (found.batch) state_->cut(found, source_);
    if (found.batch && found.batch->num_rows() > 0) return state_->take_table(std::move(found), name);
    if (!found.batch) state_->end_file();
  }
  if (state_->any) return std::nullopt;
  state_->any = true;
  return no_rows();
}

}  // namespace strake::data
