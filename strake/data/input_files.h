#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace strake::data {

enum class TableFormat { kParquet, kCsv, kTsv, kJsonLines, kText };

// From .parquet, .csv, .tsv, .json or .jsonl, .txt, all but the first also before .gz, .bz2 or .zst; Error (kUsage)
// naming these otherwise.
TableFormat format_of(const std::filesystem::path& file);

// None: the extension is none of these.
std::optional<TableFormat> known_format(const std::filesystem::path& file);

// Whether a file of this name is read where its folder is an input.
bool is_read_of_folder(const std::filesystem::path& file);

// The files that are read for `paths`: files, or folders whose data files (by extension, names with a leading '.' or
// '_' left out) follow in the order of their names. Files without a byte, and of JSON lines with nothing but blank
// lines, stand for no rows among others with some; not those of Parquet. Error (kData) for a folder without any, with a
// file and what it was compressed to, and for one whose subfolders hold files of the same kind, which would be missing;
// outputs of strake among them are passed over.
std::vector<std::filesystem::path> expand_paths(const std::vector<std::filesystem::path>& paths,
                                                const std::optional<TableFormat>& format);

}  // namespace strake::data
