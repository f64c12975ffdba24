#include "strake/tasks/output_check.h"

#include <algorithm>
#include <system_error>

#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/data/table_reader.h"

namespace strake::tasks {
namespace fs = std::filesystem;
namespace {

// By device and inode; false if one of them is not there.
bool is_same(const fs::path& one, const fs::path& other) {
  std::error_code error;
  return fs::equivalent(one, other, error) && !error;
}

fs::path or_here(const fs::path& folder) { return folder.empty() ? fs::path(".") : folder; }

bool is_of_folder(const fs::path& file, const fs::path& folder) {
  if (!is_there(file)) return false;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (is_same(entry->path(), file)) return true;
  }
  return false;
}

void check_file(const scoring::OutputPlace& place, const std::vector<fs::path>& inputs, const fs::path& model_folder) {
  const fs::path file = place.data_file(0);
  check_output_file(file, inputs);
  require(is_there(place.manifest()) || !is_of_folder(file, model_folder), ErrorKind::kUsage,
          "--output {} would replace a file of the model in {}", file.string(), model_folder.string());
}

// What is written beside it has the longest name: _NAME.manifest.json.tmp-PROCESS-NUMBER.
void check_name_length(const scoring::OutputPlace& place) {
  constexpr size_t kMostOfSystem = 255;
  constexpr size_t kTemporary = 24;
  const size_t longest = place.manifest().filename().string().size() + kTemporary;
  require(longest <= kMostOfSystem, ErrorKind::kUsage,
          "--output {}: the name is {} bytes too long: the names of its manifest and of temporary files, which are "
          "longer, may have {} bytes",
          place.data_file(0).string(), longest - kMostOfSystem, kMostOfSystem);
}

}  // namespace

void check_output_file(const fs::path& file, const std::vector<fs::path>& inputs) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (!fs::exists(status)) return;
  require(fs::is_regular_file(status), ErrorKind::kUsage, "--output {} is no regular file and would be replaced by one",
          file.string());
  const auto input = std::ranges::find_if(inputs, [&](const fs::path& path) { return is_same(path, file); });
  require(input == inputs.end(), ErrorKind::kUsage, "--output {} would replace the input {}", file.string(),
          input == inputs.end() ? "" : input->string());
}

void check_output(const scoring::OutputPlace& place, const std::vector<std::string>& input,
                  const fs::path& model_folder) {
  const fs::path folder = or_here(place.folder());
  const std::string output = place.is_folder() ? place.folder().string() + "/" : place.data_file(0).string();
  for (const fs::path path : input) {
    require(!is_same(path, folder) || !data::is_read_of_folder(place.data_file(0)), ErrorKind::kUsage,
            "--output {} lies in the input folder {}, so that the next start would read it as input; name another "
            "folder",
            output, path.string());
  }
  check_name_length(place);
  const std::vector<fs::path> inputs = data::expand_paths({input.begin(), input.end()}, {});
  check_output_file(place.manifest(), inputs);
  if (!place.is_folder()) {
    check_file(place, inputs, model_folder);
    const auto format = data::known_format(place.data_file(0));
    require(!format || format == data::TableFormat::kParquet, ErrorKind::kUsage,
            "--output {}: predictions are written as Parquet; name a file that ends with .parquet, or a folder",
            output);
    return;
  }
  for (const fs::path& path : inputs) {
    require(!path.filename().string().starts_with("part-") || !is_same(or_here(path.parent_path()), folder),
            ErrorKind::kUsage, "--output {} holds the input {}, which has the name of an output; name another folder",
            output, path.string());
  }
}

}  // namespace strake::tasks
