#include "strake/scoring/prediction_output.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/json.h"
#include "strake/scoring/job_identity.h"

namespace strake::scoring {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSuccessName = "_SUCCESS";

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  fs::directory_iterator entry(folder.empty() ? fs::path(".") : folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) paths.push_back(entry->path());
  require(!error, ErrorKind::kIo, "cannot list {}: {}", folder.string(), error.message());
  return paths;
}

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  require(!error, ErrorKind::kIo, "cannot remove {}: {}", path.string(), error.message());
}

bool drop_number(std::string_view& text) {
  constexpr size_t kFewestDigits = 5;
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  text.remove_prefix(digits);
  return digits >= kFewestDigits;
}

bool drop(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// As OutputPlace names the files of a folder, of a shard or not. Spark's go on: "part-00000-5f3c....snappy.parquet".
bool is_part_name(std::string_view name) {
  if (!drop(name, "part-") || !drop_number(name)) return false;
  if (drop(name, "-of-") && !(drop_number(name) && drop(name, "-") && drop_number(name))) return false;
  return name == ".parquet";
}

// Rows [begin, end).
ScoredRows cut(const ScoredRows& scored, int64_t begin, int64_t end) {
  const auto part = [&]<typename Rows>(const Rows& rows) { return Rows(rows.begin() + begin, rows.begin() + end); };
  if (const auto* numbers = std::get_if<at::Tensor>(&scored)) return numbers->slice(0, begin, end);
  if (const auto* words = std::get_if<WordLabels>(&scored)) return WordLabels{part(words->names), part(words->scores)};
  return part(std::get<data::SpanRows>(scored));
}

}  // namespace

OutputPlace::OutputPlace(const std::string& output, const Shard& shard) : shard_(shard) {
  const fs::path path = output;
  folder_ = path.parent_path();  // of "scored/" it is "scored"
  std::error_code error;
  require(!path.has_filename() || !fs::is_directory(path, error), ErrorKind::kUsage,
          "--output {} is a folder: write {}/ to fill it with files", output, output);
  if (!path.has_filename()) return;
  name_ = path.stem().string() + shard.suffix() + path.extension().string();
  const fs::path link = data_file(0);
  if (!fs::is_symlink(link, error)) return;
  const fs::path real = fs::canonical(link, error);
  require(!error, ErrorKind::kUsage, "--output {} is a symbolic link that leads to no file", link.string());
  folder_ = real.parent_path();
  name_ = real.filename().string();
}

fs::path OutputPlace::data_file(int64_t part) const {
  return folder_ / (is_folder() ? fmt::format("{}{:05}.parquet", part_prefix(), part) : name_);
}

fs::path OutputPlace::job_folder() const {
  return folder_ / (is_folder() ? ".job" + shard_.suffix() : fmt::format(".{}.job", name_));
}

fs::path OutputPlace::manifest_of(const Shard& shard) const {
  return folder_ /
         (is_folder() ? fmt::format("_manifest{}.json", shard.suffix()) : fmt::format("_{}.manifest.json", name_));
}

// "part-00001-of-00008-..." with this count but another index.
bool OutputPlace::is_of_other_shard(const std::string& part) const {
  const std::string end = fmt::format("-of-{:05}-", shard_.count);
  constexpr size_t kIndexEnd = 10;  // of "part-00001"
  return !shard_.is_all() && part.size() > kIndexEnd + end.size() && part.compare(kIndexEnd, end.size(), end) == 0 &&
         !part.starts_with(part_prefix());
}

void OutputPlace::remove_leftovers() const {
  const std::string data = is_folder() ? part_prefix() : name_ + ".tmp";
  const std::string manifest = this->manifest().filename().string() + ".tmp";
  for (const fs::path& path : entries_of(folder_)) {
    const std::string name = path.filename().string();
    if (is_atomic_leftover(name) && (name.starts_with(data) || name.starts_with(manifest))) remove_file(path);
  }
}

std::string OutputPlace::difference_from_finished(const Json& identity) const {
  if (!is_there(manifest())) return {};
  const Json before = get_or<Json>(read_json(manifest(), kMaxIndexBytes), "job", {}, manifest().string());
  if (!before.is_object()) return {};
  const IdentityDifference found = difference_of(before, identity);
  return found.key.empty() ? "" : fmt::format(", which had {} = {}, now it is {}", found.key, found.before, found.now);
}

void OutputPlace::make_room(const Json& identity, bool overwrite) const {
  if (!is_folder()) return;
  std::vector<fs::path> earlier;
  for (const fs::path& path : entries_of(folder_)) {
    const std::string name = path.filename().string();
    if (name.starts_with("_") || name.starts_with(".") || is_of_other_shard(name)) continue;
    require(is_part_name(name), ErrorKind::kUsage,
            "--output {}/ holds {}, which strake predict did not write: who reads the folder would take it for rows of "
            "the output; name another folder, or take it away",
            folder_.string(), printable(name));
    const bool is_ours =
        name.starts_with(part_prefix()) && (!shard_.is_all() || name.find("-of-") == std::string::npos);
    require(is_ours, ErrorKind::kUsage,
            "--output {}/ holds {}, which another cut of the rows gave; name another folder, or empty it",
            folder_.string(), name);
    earlier.push_back(path);
  }
  require(earlier.empty() || overwrite, ErrorKind::kUsage,
          "--output {}/ holds {} of an earlier run{}; pass --overwrite_output to replace it, or name another folder",
          folder_.string(), earlier.empty() ? "" : earlier.front().filename().string(),
          earlier.empty() ? "" : difference_from_finished(identity));
  remove_file(folder_ / kSuccessName);
  remove_file(manifest());
  for (const fs::path& path : earlier) remove_file(path);
}

std::string OutputPlace::unlike_shard(const Json& identity) const {
  if (!is_folder()) return {};
  for (int64_t index = 0; index < shard_.count; ++index) {
    const fs::path path = manifest_of({.index = index, .count = shard_.count});
    if (index == shard_.index || !is_there(path)) continue;
    const Json other = get_required<Json>(read_json(path, kMaxIndexBytes), "job", path.string());
    require(other.is_object(), ErrorKind::kConfig, "{}: job is no object", path.string());
    const IdentityDifference found = difference_of_shards(other, identity);
    if (found.key.empty()) continue;
    return fmt::format("{}: that shard had {} = {}, this one has {}; shards of one output are scored alike ({})",
                       path.string(), found.key, found.before, found.now,
                       found.key == "kernels" ? "STRAKE_ISA names kernels that all machines have"
                                              : "with the same model, input, flags and version");
  }
  return {};
}

void OutputPlace::mark_success() const {
  if (!is_folder()) return;
  for (int64_t index = 0; index < shard_.count; ++index) {
    if (!is_there(manifest_of({.index = index, .count = shard_.count}))) return;
  }
  // Empty, so that it is complete as soon as it is there, whichever of several shards makes it.
  const std::ofstream success(folder_ / kSuccessName);
  require(success.is_open(), ErrorKind::kIo, "cannot write {}", (folder_ / kSuccessName).string());
  sync_directory(folder_);
}

PredictionOutput::PredictionOutput(OutputPlace place, PredictionColumns columns, KeptColumns kept,
                                   OutputOptions options)
    : place_(std::move(place)), columns_(std::move(columns)), kept_(std::move(kept)), options_(std::move(options)) {
  if (!place_.is_folder()) options_.rows_per_file = std::numeric_limits<int64_t>::max();
}

void PredictionOutput::append(const data::Table& table, const ScoredRows& scored) {
  const data::Table kept = kept_.of(table);
  const int64_t rows = table.num_rows();
  int64_t begin = 0;
  do {
    if (!writer_) {
      writer_.emplace(place_.data_file(std::ssize(files_)), data::TableWriterOptions{.metadata = options_.metadata});
      rows_in_file_ = 0;
    }
    const int64_t end = begin + std::min(rows - begin, options_.rows_per_file - rows_in_file_);
    writer_->append(kept.slice(begin, end), columns_.of(cut(scored, begin, end)));
    rows_in_file_ += end - begin;
    begin = end;
    if (rows_in_file_ == options_.rows_per_file) finish();
  } while (begin < rows);
}

void PredictionOutput::finish() {
  if (!writer_) return;
  const FileSum sum = writer_->finish();
  writer_.reset();
  files_.push_back(WrittenFile::of(place_.data_file(std::ssize(files_)), rows_in_file_, sum));
}

}  // namespace strake::scoring
