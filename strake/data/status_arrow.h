#pragma once

#include <arrow/result.h>
#include <arrow/status.h>

#include <string>
#include <utility>

#include "strake/core/error.h"

// Arrow's errors become strake::Error at the edge of this module.
namespace strake::data {

// kIo if the operating system refused something, kUsage if it gave no memory, else kData: Arrow calls damaged files
// "IOError" as well.
ErrorKind kind_of(const arrow::Status& status);
// With the operating system's reason, which Arrow keeps apart.
std::string text_of(const arrow::Status& status);

inline void require_ok(const arrow::Status& status, const std::string& file,
                       std::source_location where = std::source_location::current()) {
  if (!status.ok()) {
    throw Error(kind_of(status), fmt::format("{}: {}", file, text_of(status)), where);
  }
}

template <typename T>
T value_of(arrow::Result<T> result, const std::string& file,
           std::source_location where = std::source_location::current()) {
  require_ok(result.status(), file, where);
  return std::move(result).ValueUnsafe();
}

}  // namespace strake::data
