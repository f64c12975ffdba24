#pragma once

#include <filesystem>
#include <string_view>

namespace strake {

// A file that grows by whole pieces: a reader of a running program's file sees pieces, never parts, and a piece
// outlives the process as soon as append() returns. Not thread-safe; one writer per file.
class AppendedFile {
 public:
  enum class Beginning { kNew, kEmpty, kAsItIs };

  // Opens or creates it. Error (kIo) with the path and reason; of kNew also if it is there.
  AppendedFile(std::filesystem::path path, Beginning beginning);
  AppendedFile(AppendedFile&& other) noexcept;
  AppendedFile& operator=(AppendedFile&&) = delete;
  ~AppendedFile();

  // Error (kIo) if the piece cannot be written (a full disk); the file then ends where it ended before. If somebody has
  // removed the file it goes on in a new one, of which a warning tells.
  void append(std::string_view piece);

 private:
  void open_again_if_removed();

  std::filesystem::path path_;
  int descriptor_;
};

}  // namespace strake
