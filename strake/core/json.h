#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strake/core/error.h"

namespace strake {

using Json = nlohmann::json;

// Largest accepted sizes of files that come from outside.
inline constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
inline constexpr uint64_t kMaxTokenizerBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMaxHistoryBytes = uint64_t{256} << 20;

// Parses JSON that may be hostile: at most 64 levels deep, no duplicate keys, valid UTF-8, finite numbers.
// Errors are kConfig and start with `source` (a path, or "file:line").
Json parse_json(std::string_view text, const std::string& source);

// parse_json of a whole file of at most `max_bytes`.
Json read_json(const std::filesystem::path& path, uint64_t max_bytes);

// JSON as it goes into a file or to stdout, on one line if `indent` is negative. Bytes that are no UTF-8, as names of
// files may have, become U+FFFD.
std::string json_text(const Json& json, int indent = -1);
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

// What errors say is expected where a T is.
template <typename T>
std::string json_words() {
  if constexpr (std::is_same_v<T, bool>) {
    return "true or false";
  } else if constexpr (std::is_integral_v<T>) {
    return fmt::format("an integer from {} to {}", std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  } else if constexpr (std::is_floating_point_v<T>) {
    return "a number";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "a string";
  } else {
    static_assert(std::is_same_v<T, std::vector<std::string>> || std::is_same_v<T, std::vector<double>> ||
                  std::is_same_v<T, Json>);
    if (std::is_same_v<T, Json>) return "a value";
    return std::is_same_v<T, std::vector<std::string>> ? "a list of strings" : "a list of numbers";
  }
}

// Typed access with errors that name the source and the key.
template <typename T>
T get_or(const Json& object, const char* key, const T& fallback, const std::string& source) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return fallback;
  try {
    if constexpr (std::is_same_v<T, bool>) require(found->is_boolean(), ErrorKind::kConfig, "not a boolean");
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      const bool fits = found->is_number_unsigned()
                            ? std::in_range<T>(found->template get<uint64_t>())
                            : found->is_number_integer() && std::in_range<T>(found->template get<int64_t>());
      require(fits, ErrorKind::kConfig, "not an integer that fits");
    }
    if constexpr (std::is_floating_point_v<T>) require(found->is_number(), ErrorKind::kConfig, "not a number");
    return found->template get<T>();
  } catch (const std::exception&) {
    fail(ErrorKind::kConfig, "{}: key '{}' has the unexpected value {}, expected {}", source, key,
         printable(found->dump()), json_words<T>());
  }
}

template <typename T>
T get_required(const Json& object, const char* key, const std::string& source) {
  require(object.is_object() && object.contains(key), ErrorKind::kConfig, "{}: key '{}' is missing", source, key);
  require(!object.at(key).is_null(), ErrorKind::kConfig, "{}: key '{}' is null", source, key);
  return get_or<T>(object, key, T{}, source);
}

}  // namespace strake
