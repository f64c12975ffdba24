#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "strake/core/crc32c.h"
#include "strake/core/json.h"

namespace strake::scoring {

// A file of an output as it was when it was complete, for the manifest beside it.
struct WrittenFile {
  std::string name;
  int64_t rows = 0;
  FileSum sum;
  int64_t changed = 0;  // the inode, in ns since 1970: no program can set this time

  // Of a file that has just been written. Errors: kIo.
  static WrittenFile of(const std::filesystem::path& path, int64_t rows, const FileSum& sum);
  // How the file of this name in `folder` differs, as the end of a sentence about it; "" if it does not. Reads no file
  // of the right size whose inode has not changed; of others, such as those of a copied folder, the checksum decides.
  // Errors: kIo.
  std::string difference_in(const std::filesystem::path& folder) const;
};

Json to_json(const WrittenFile& file);
// The list `files` of a manifest. Errors (kConfig) name `source`.
std::vector<WrittenFile> parse_written_files(const Json& manifest, const std::string& source);

}  // namespace strake::scoring
