#include "strake/data/input_files.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "strake/core/error.h"
#include "strake/core/log.h"
#include "strake/data/byte_stream.h"

namespace strake::data {
namespace fs = std::filesystem;
namespace {

constexpr std::pair<std::string_view, TableFormat> kExtensions[] = {
    {".parquet", TableFormat::kParquet}, {".csv", TableFormat::kCsv},         {".tsv", TableFormat::kTsv},
    {".json", TableFormat::kJsonLines},  {".jsonl", TableFormat::kJsonLines}, {".txt", TableFormat::kText}};

constexpr const char* kAccepted =
    ".parquet, .csv, .tsv, .json, .jsonl and .txt, all but the first also with .gz, .bz2 or .zst";

bool is_hidden(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.starts_with('.') || name.starts_with('_');
}

// "y=1, y=2", at most so many of them.
std::string some_of(std::vector<std::string> names) {
  std::ranges::sort(names);
  constexpr size_t kShown = 5;
  const bool is_all = names.size() <= kShown;
  if (!is_all) names.resize(kShown);
  return printable(fmt::format("{}", fmt::join(names, ", ")), 500) + (is_all ? "" : ", ...");
}

// Folders are listed several times.
bool is_told_already(const fs::path& path) {
  static std::mutex mutex;
  static std::set<fs::path> told;
  const std::lock_guard lock(mutex);
  return !told.insert(path).second;
}

void warn_of_passed_over(const fs::path& folder, const std::vector<std::string>& names) {
  if (names.empty() || is_told_already(folder)) return;
  log::warning("{}: {} of its entries {} not read, being folders or of another kind than {}: {}", folder.string(),
               names.size(), names.size() == 1 ? "is" : "are", kAccepted, some_of(names));
}

// What strake predict fills or has filled.
struct OutputMarks {
  bool has_job = false;  // that has not ended
  bool has_manifest = false;
  bool is_whole = false;

  void see(const std::string& name) {
    has_job = has_job || name.starts_with(".job");
    has_manifest = has_manifest || name.starts_with("_manifest");
    is_whole = is_whole || name == "_SUCCESS";
  }
  bool is_output() const { return has_job || has_manifest; }
};
bool is_output(const fs::path& folder) {
  OutputMarks marks;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    marks.see(entry->path().filename().string());
  }
  return marks.is_output();
}

// Rows that are not there yet would be missing.
void refuse_unfinished_output(const fs::path& folder, const OutputMarks& marks) {
  require(!marks.is_output() || (marks.is_whole && !marks.has_job), ErrorKind::kData,
          "{} is an output of strake predict that is not whole yet{}: let the same command{} go on until _SUCCESS is "
          "there, or name the files that are meant",
          folder.string(), marks.has_job ? ", which its .job shows" : ", as it has no _SUCCESS",
          marks.has_job ? "" : "s of all shards");
}

// Of what is in it, if it is compressed.
std::string format_extension(const fs::path& file) { return lower_extension(is_compressed(file) ? file.stem() : file); }

// "FOLDER/*.csv.gz" of files in it.
std::string pattern_of(const fs::path& folder, const fs::path& file) {
  const std::string packed = is_compressed(file) ? file.stem().extension().string() : "";
  return (folder / "*").string() + packed + file.extension().string();
}

// Of the files with these extensions at any depth of `folder`, but not through links to folders, which may lead back.
// `as` is the folder's own pattern.
void add_patterns_below(const fs::path& folder, const fs::path& as, const std::set<std::string>& extensions,
                        std::set<std::string>& patterns) {
  if (is_output(folder)) return;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    std::error_code unknown;
    if (is_hidden(path)) continue;
    if (entry->is_directory(unknown)) {
      if (!entry->is_symlink(unknown)) add_patterns_below(path, as / "*", extensions, patterns);
    } else if (extensions.contains(format_extension(path))) {
      patterns.insert(pattern_of(as, path));
    }
  }
}

// Their rows would be missing without anybody noticing.
void refuse_subfolders(const fs::path& folder, const std::vector<fs::path>& subfolders,
                       const std::vector<fs::path>& files, const std::optional<TableFormat>& format) {
  std::set<std::string> extensions;  // of the files; where there are none, all that could be read
  for (const fs::path& file : files) extensions.insert(format_extension(file));
  for (const auto& [extension, known] : kExtensions) {
    if (files.empty() && known == format.value_or(known)) extensions.emplace(extension);
  }
  std::vector<std::string> names;
  std::set<std::string> patterns;
  for (const fs::path& subfolder : subfolders) {
    std::set<std::string> below;
    add_patterns_below(subfolder, folder / "*", extensions, below);
    if (!below.empty()) names.push_back(subfolder.filename().string());
    patterns.merge(below);
  }
  if (names.empty()) return;
  for (const fs::path& file : files) patterns.insert(pattern_of(folder, file));
  fail(ErrorKind::kData,
       "{}: its subfolder{} {} hold{} data files, and only the files of a folder itself are read: name these files, as "
       "the shell does for the pattern{} {}",
       folder.string(), names.size() == 1 ? "" : "s", some_of(names), names.size() == 1 ? "s" : "",
       patterns.size() == 1 ? "" : "s", fmt::join(patterns, " "));
}

// Both would be read, and the rows would be there twice.
void refuse_packed_copies(const fs::path& folder, const std::vector<fs::path>& files) {
  std::map<fs::path, fs::path> packed_as;  // by the name of what is in it
  for (const fs::path& file : files) {
    const fs::path name = file.filename();
    const auto [first, is_new] = packed_as.try_emplace(is_compressed(file) ? name.stem() : name, name);
    require(is_new, ErrorKind::kData,
            "{} holds {} and {}, which may be the same rows twice: name the files that are meant", folder.string(),
            first->second.string(), name.string());
  }
}

std::vector<fs::path> data_files_in(const fs::path& folder, const std::optional<TableFormat>& format) {
  std::vector<fs::path> files;
  std::vector<fs::path> subfolders;
  std::vector<std::string> passed_over;
  OutputMarks marks;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    marks.see(entry->path().filename().string());
    if (is_hidden(entry->path())) continue;
    const std::optional<TableFormat> known = known_format(entry->path());
    std::error_code unknown;
    const bool is_folder = entry->is_directory(unknown);
    if (is_folder) subfolders.push_back(entry->path());
    if (!known || is_folder) {
      passed_over.push_back(entry->path().filename().string());
    } else if (known == format.value_or(*known)) {
      files.push_back(entry->path());
    }
  }
  require(!error, ErrorKind::kIo, "cannot list {}: {}", folder.string(), error.message());
  std::ranges::sort(files);
  std::ranges::sort(subfolders);
  refuse_unfinished_output(folder, marks);
  refuse_subfolders(folder, subfolders, files, format);
  refuse_packed_copies(folder, files);
  require(!files.empty(), ErrorKind::kData, "{} holds no data files ({})", folder.string(), kAccepted);
  warn_of_passed_over(folder, passed_over);
  return files;
}

void warn_of_files_named_twice(const std::vector<fs::path>& files) {
  std::set<std::pair<dev_t, ino_t>> seen;  // links, hard ones as well, are the file that they lead to
  std::vector<std::string> again;
  for (const fs::path& file : files) {
    struct stat status{};
    const bool is_there = ::stat(file.c_str(), &status) == 0;
    if (is_there && !seen.emplace(status.st_dev, status.st_ino).second) again.push_back(file.string());
  }
  if (again.empty() || is_told_already(again.front() + " twice")) return;
  log::warning("{} of the input's files {} named twice, and {} rows are read twice: {}", again.size(),
               again.size() == 1 ? "is" : "are", again.size() == 1 ? "its" : "their", some_of(again));
}

// Also if it is compressed.
bool is_without_bytes(const fs::path& file) {
  constexpr uintmax_t kMostOfNothing = 256;  // bytes that compressed nothing takes
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;
  const uintmax_t size = fs::file_size(file, error);
  if (error || size == 0 || size > kMostOfNothing || !is_compressed(file)) return !error && size == 0;
  char byte = 0;
  return open_bytes(file)->read(&byte, 1) == 0;
}

// Also of nothing but blank lines.
bool is_without_json_lines(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;
  const auto stream = open_bytes(file);
  std::array<char, 4096> block{};
  while (const size_t found = stream->read(block.data(), block.size())) {
    const std::string_view bytes(block.data(), found);
    if (bytes.find_first_not_of(" \t\r\n") != std::string_view::npos) return false;
  }
  return true;
}

bool is_without_rows(const fs::path& file, TableFormat format) {
  if (format == TableFormat::kParquet) return false;
  return format == TableFormat::kJsonLines ? is_without_json_lines(file) : is_without_bytes(file);
}

// Spark's writers of text leave a file without bytes where a part of a table has no rows. Where all are so, or Parquet
// is, something went wrong.
void pass_over_parts_without_rows(std::vector<fs::path>& files, const std::optional<TableFormat>& format) {
  std::vector<fs::path> kept;
  std::vector<std::string> empty;
  for (const fs::path& file : files) {
    if (is_without_rows(file, format.value_or(known_format(file).value_or(TableFormat::kParquet)))) {
      empty.push_back(file.string());
    } else {
      kept.push_back(file);
    }
  }
  if (kept.empty() || empty.empty()) return;
  if (!is_told_already(empty.front())) {
    log::warning("{} of the input's files {} no rows, and {} passed over: {}", empty.size(),
                 empty.size() == 1 ? "holds" : "hold", empty.size() == 1 ? "is" : "are", some_of(empty));
  }
  files = std::move(kept);
}

}  // namespace

std::optional<TableFormat> known_format(const fs::path& file) {
  const std::string extension = format_extension(file);
  for (const auto& [known, format] : kExtensions) {
    if (extension != known) continue;
    // Parquet compresses its pages: nobody could read parts of such a file.
    return format == TableFormat::kParquet && is_compressed(file) ? std::nullopt : std::optional(format);
  }
  return std::nullopt;
}

bool is_read_of_folder(const fs::path& file) { return !is_hidden(file) && known_format(file).has_value(); }

TableFormat format_of(const fs::path& file) {
  const auto format = known_format(file);
  require(format.has_value(), ErrorKind::kUsage, "{}: unknown kind of file; accepted are {}", file.string(), kAccepted);
  return *format;
}

std::vector<fs::path> expand_paths(const std::vector<fs::path>& paths, const std::optional<TableFormat>& format) {
  require(!paths.empty(), ErrorKind::kUsage, "no input file is given");
  std::vector<fs::path> files;
  for (const fs::path& path : paths) {
    require(!path.empty(), ErrorKind::kUsage, "the name of an input file is empty");
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    const std::vector<fs::path> inside = data_files_in(path, format);
    files.insert(files.end(), inside.begin(), inside.end());
  }
  warn_of_files_named_twice(files);
  pass_over_parts_without_rows(files, format);
  return files;
}

}  // namespace strake::data
