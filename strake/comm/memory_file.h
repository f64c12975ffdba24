#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace strake::comm {

// Memory that processes of one host map together: a file of memfd_create(2), which the others open through /proc of the
// process that made it. It has no name that could be left behind, and is gone when the last of them has let it go,
// however they end.
class MemoryFile {
 public:
  // By which other processes find it; valid while the MemoryFile that was made lives.
  struct Place {
    int64_t process = 0;
    int64_t descriptor = 0;
    int64_t device = 0;
    int64_t inode = 0;
  };

  // `bytes` (> 0) zeros. Error (kIo) if the host does not allow it.
  static MemoryFile make(size_t bytes);
  // Error (kIo) where this process cannot see that one or its files, as in another container. A process of another host
  // or container may have the same numbers: who doubts it has to look at what is in the file.
  static MemoryFile find(const Place& place, size_t bytes);

  MemoryFile(MemoryFile&& other) noexcept;
  MemoryFile& operator=(MemoryFile&&) = delete;
  ~MemoryFile();

  Place place() const;
  // A page is taken, and charged to a control group, for the process that touches it first: those of bytes
  // [begin, begin + count) are touched at once. Stays when the file is gone. Error (kIo) if there are not enough
  // addresses, or, where the kernel can tell (Linux 5.14), not enough memory.
  std::shared_ptr<void> map(size_t begin, size_t count) const;

 private:
  MemoryFile(int descriptor, size_t bytes) : descriptor_(descriptor), bytes_(bytes) {}

  int descriptor_;
  size_t bytes_;
};

}  // namespace strake::comm
