#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace strake::data {

// More are neither written nor accepted: a forged count must not make us allocate without bound.
inline constexpr int64_t kMostLengths = int64_t{1} << 28;

// Sequence lengths as printable text: "<plain size>:<base64 of zstd of LEB128 numbers>"; about one byte each.
std::string encode_lengths(std::span<const int32_t> lengths);

// Reads `count` lengths back; Error (kData) starting with `source` if the text is not exactly that.
std::vector<int32_t> decode_lengths(const std::string& text, int64_t count, const std::string& source);

}  // namespace strake::data
