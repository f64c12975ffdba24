#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

namespace strake::data {

// What the name ends in, in lower case, with its dot.
std::string lower_extension(const std::filesystem::path& file);

// Whether the name says so: .gz, .bz2 or .zst.
bool is_compressed(const std::filesystem::path& file);

// A file's bytes from its begin to its end, decompressed if the name says that it is compressed; also of several
// compressed streams one behind the other, as parallel gzip and Hadoop write them. In constant memory.
class ByteStream {
 public:
  ByteStream() = default;
  virtual ~ByteStream() = default;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // Bytes written to `to`: `size` of them, or fewer at the end. Errors name the file: kIo; kData if it is not what its
  // name says, damaged, or cut off.
  virtual size_t read(char* to, size_t size) = 0;
};

std::unique_ptr<ByteStream> open_bytes(const std::filesystem::path& file);

}  // namespace strake::data
