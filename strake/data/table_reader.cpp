#include "strake/data/table_reader.h"

#include <arrow/api.h>
#include <parquet/file_reader.h>

#include <algorithm>
#include <cctype>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "strake/core/log.h"
#include "strake/data/parquet_file_arrow.h"
#include "strake/data/row_source_arrow.h"
#include "strake/data/status_arrow.h"
#include "strake/data/table_arrow.h"

namespace strake::data {
namespace fs = std::filesystem;
namespace {

constexpr std::pair<std::string_view, TableFormat> kExtensions[] = {
    {".parquet", TableFormat::kParquet}, {".csv", TableFormat::kCsv},         {".tsv", TableFormat::kTsv},
    {".json", TableFormat::kJsonLines},  {".jsonl", TableFormat::kJsonLines}, {".txt", TableFormat::kText}};

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

bool is_hidden(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.starts_with('.') || name.starts_with('_');
}

// Once for each folder, which is listed several times.
void warn_of_passed_over(const fs::path& folder, std::vector<std::string> names) {
  static std::mutex mutex;
  static std::set<fs::path> told;
  const std::lock_guard lock(mutex);
  if (names.empty() || !told.insert(folder).second) return;
  std::ranges::sort(names);
  constexpr size_t kShown = 5;
  const size_t count = names.size();
  if (count > kShown) names.resize(kShown);
  log::warning(
      "{}: {} of its entries {} not read, being folders or of another kind than .parquet, .csv, .tsv, .json, "
      ".jsonl and .txt: {}{}",
      folder.string(), count, count == 1 ? "is" : "are", printable(fmt::format("{}", fmt::join(names, ", ")), 500),
      count > kShown ? ", ..." : "");
}

std::vector<fs::path> data_files_in(const fs::path& folder, const std::optional<TableFormat>& format) {
  std::vector<fs::path> files;
  std::vector<std::string> passed_over;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_hidden(entry->path())) continue;
    const std::optional<TableFormat> known = known_format(entry->path());
    std::error_code unknown;
    if (!known || entry->is_directory(unknown)) {
      passed_over.push_back(entry->path().filename().string());
    } else if (known == format.value_or(*known)) {
      files.push_back(entry->path());
    }
  }
  require(!error, ErrorKind::kIo, "cannot list {}: {}", folder.string(), error.message());
  require(!files.empty(), ErrorKind::kData, "{} holds no data files (.parquet, .csv, .tsv, .json, .jsonl or .txt)",
          folder.string());
  warn_of_passed_over(folder, std::move(passed_over));
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::optional<TableFormat> known_format(const fs::path& file) {
  std::string extension = file.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const auto& [known, format] : kExtensions) {
    if (extension == known) return format;
  }
  return std::nullopt;
}

bool is_read_of_folder(const fs::path& file) { return !is_hidden(file) && known_format(file).has_value(); }

TableFormat format_of(const fs::path& file) {
  const auto format = known_format(file);
  require(format.has_value(), ErrorKind::kUsage,
          "{}: unknown kind of file; accepted are .parquet, .csv, .tsv, .json, .jsonl and .txt", file.string());
  return *format;
}

std::vector<fs::path> expand_paths(const std::vector<fs::path>& paths, const std::optional<TableFormat>& format) {
  require(!paths.empty(), ErrorKind::kUsage, "no input file is given");
  std::vector<fs::path> files;
  for (const fs::path& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    const std::vector<fs::path> inside = data_files_in(path, format);
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

int64_t count_rows(const TableSource& source) {
  int64_t rows = 0;
  const std::vector<fs::path> files = expand_paths(source.paths, source.format);
  if ((source.format ? *source.format : format_of(files.front())) == TableFormat::kParquet) {
    for (const fs::path& file : files) {
      rows += open_parquet_reader(file, source.rows_per_chunk)->parquet_reader()->metadata()->num_rows();
    }
    return rows;
  }
  TableReader reader(source);
  while (const auto table = reader.next()) rows += table->num_rows();
  return rows;
}

struct TableReader::State {
  TableFormat format = TableFormat::kParquet;
  std::unique_ptr<RowSource> rows;
  std::shared_ptr<arrow::Schema> schema;  // of every file
  std::vector<int> selected;              // columns to keep of `schema`; empty means all
  size_t file = 0;
  int64_t first_row = 0;
  int64_t first_row_in_file = 0;
  bool any = false;

  void open(const TableSource& source, const std::vector<fs::path>& files) {
    const std::string name = files[file].string();
    rows = open_source(format, {.file = files[file],
                                .encoding = source.encoding,
                                .rows_per_chunk = source.rows_per_chunk,
                                .columns = source.columns,
                                .schema = schema});
    first_row_in_file = rows->skip(std::max<int64_t>(0, source.first_row - first_row));
    first_row += first_row_in_file;
    if (!schema) {
      schema = rows->schema();
      for (const std::string& column : source.columns) selected.push_back(column_index(*schema, column, name));
      return;
    }
    require(rows->schema()->Equals(*schema, /*check_metadata=*/false), ErrorKind::kData,
            "{}: its columns differ from those of {}: found ({}), expected ({})", name, files.front().string(),
            one_line(*rows->schema()), one_line(*schema));
  }

  static std::string one_line(const arrow::Schema& schema) {
    std::vector<std::string> columns;
    for (const auto& field : schema.fields()) columns.push_back(field->ToString());
    constexpr size_t kLongestList = 500;
    return printable(fmt::format("{}", fmt::join(columns, ", ")), kLongestList);
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

  Table make_table(SourceRows found, const std::string& name) {
    auto content = std::make_shared<Table::Content>();
    content->batch = found.batch->ReplaceSchemaMetadata(schema->metadata());
    if (!selected.empty()) content->batch = value_of(content->batch->SelectColumns(selected), name);
    content->file = name;
    content->first_row = first_row;
    content->first_row_in_file = first_row_in_file;
    content->lines = std::move(found.lines);
    first_row += found.batch->num_rows();
    first_row_in_file += found.batch->num_rows();
    any = true;
    return Table(std::move(content));
  }
};

TableReader::TableReader(TableSource source)
    : source_(std::move(source)),
      files_(expand_paths(source_.paths, source_.format)),
      state_(std::make_unique<State>()) {
  require(source_.rows_per_chunk > 0, ErrorKind::kConfig, "rows_per_chunk={} must be positive", source_.rows_per_chunk);
  require(source_.first_row >= 0 && source_.end_row >= source_.first_row, ErrorKind::kConfig,
          "rows [{}, {}) were asked for", source_.first_row, source_.end_row);
  state_->format = source_.format ? *source_.format : format_of(files_.front());
  for (const fs::path& file : files_) {
    require(source_.format || format_of(file) == state_->format, ErrorKind::kUsage,
            "{} and {} are different kinds of files; name one kind", files_.front().string(), file.string());
  }
  state_->open(source_, files_);
}

TableReader::~TableReader() = default;
TableReader::TableReader(TableReader&&) noexcept = default;
TableReader& TableReader::operator=(TableReader&&) noexcept = default;

std::vector<std::string> TableReader::column_names() const {
  if (!source_.columns.empty()) return source_.columns;
  return state_->schema->field_names();
}

std::optional<Table> TableReader::next() {
  while (state_->file < files_.size() && state_->first_row < source_.end_row) {
    if (!state_->rows) state_->open(source_, files_);
    const std::string name = files_[state_->file].string();
    SourceRows found = state_->rows->next();
    if (found.batch) state_->cut(found, source_);
    if (found.batch && found.batch->num_rows() > 0) return state_->make_table(std::move(found), name);
    if (found.batch) continue;
    state_->rows.reset();
    ++state_->file;
  }
  if (state_->any) return std::nullopt;
  SourceRows none;
  none.batch = value_of(arrow::RecordBatch::MakeEmpty(state_->schema), files_.front().string());
  return state_->make_table(std::move(none), files_.front().string());
}

}  // namespace strake::data
