#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace strake::scoring {

// Which weights and configuration something was computed with or measured for.
struct ModelFingerprint {
  int64_t weight_bytes = 0;
  uint32_t weight_crc32c = 0;  // of the *.safetensors files, one after the other by name
  uint32_t config_crc32c = 0;

  bool operator==(const ModelFingerprint&) const = default;
  std::string text() const;  // "0a1b2c3d-4e5f6071-438012376": configuration, weights, their bytes
};
// Reads all weights once. Errors: kIo.
ModelFingerprint fingerprint_of(const std::filesystem::path& folder);

}  // namespace strake::scoring
