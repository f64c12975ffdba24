#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "strake/core/crc32c.h"

namespace strake {

class DirectOutput;

// Whole content of a regular file. Errors (kIo) name the path: missing, not a regular file (FIFOs and devices are
// refused without blocking), or larger than `max_bytes`.
std::string read_file(const std::filesystem::path& path, uint64_t max_bytes);

// `directory/name` for a name that comes from outside (an index file, a configuration). The name must be one plain path
// component of [A-Za-z0-9._-], not starting with '.', and, if a symbolic link, must end inside `directory` or the
// Hugging Face cache layout's sibling `blobs` folder. Throws kConfig naming `source`.
std::filesystem::path resolve_inside(const std::filesystem::path& directory, const std::string& name,
                                     const std::string& source);

// Makes a rename or unlink in `directory` durable.
void sync_directory(const std::filesystem::path& directory);
// fsync() and fdatasync(); false with errno. A signal that asks for the end of a run must not spoil what is saved for
// it.
bool sync_file(int file);
bool sync_data(int file);

// Creates the directory and its parents; Error (kIo) with the path and reason.
void create_directories(const std::filesystem::path& directory);

// False also where it cannot be found out.
bool is_there(const std::filesystem::path& path);
// Whether it is there; Error (kIo) where it cannot be found out.
bool look_for(const std::filesystem::path& path);

// posix_fallocate(), also where signals come: 0, or what errno would say.
int reserve_space(int file, uint64_t bytes);

// Writes a file so that readers see the old content or the complete new content, never a part, also after a power cut:
// data goes to a temporary sibling which commit() fsyncs and renames. Without commit() the destructor removes it.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Before anything is written: reserves disk space, so that a full disk is an error now. A large file then goes past
  // the page cache (DirectOutput).
  void reserve(uint64_t bytes);
  void write(const void* data, uint64_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

  // Of what was written, as it was in memory: what a disk makes of it does not count.
  const FileSum& sum() const { return sum_; }
  const std::filesystem::path& temporary_path() const { return temporary_; }

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  std::unique_ptr<DirectOutput> direct_;  // of a large file
  FileSum sum_;
};

// True for the names of AtomicFile's temporary siblings: "model.safetensors.tmp-<process>-<number>".
bool is_atomic_leftover(std::string_view name);

// Such a file of a process that has ended, or of an earlier one with this process's number, as containers give it.
bool is_abandoned(std::string_view name);

// Removes abandoned temporary siblings of `path`. Error: kIo.
void remove_atomic_leftovers(const std::filesystem::path& path);

// AtomicFile in one call.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Peak resident set size in bytes, of this program alone, whatever started it.
uint64_t peak_resident_bytes();

}  // namespace strake
