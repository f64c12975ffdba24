#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

#include "strake/core/error.h"

// For tests.
namespace strake {

// Kind and text of the Error that an action threw.
struct Caught {
  std::optional<ErrorKind> kind;
  std::string text = "no error";

  // The text of an error that is expected to be of this kind.
  const std::string& text_of(ErrorKind expected) const {
    EXPECT_EQ(kind.value_or(expected), expected) << text;
    return text;
  }
  // "data error: row 7"
  std::string with_kind() const { return kind ? std::string(to_string(*kind)) + ": " + text : text; }
  testing::AssertionResult says(ErrorKind expected_kind, std::string_view part) const {
    if (kind == expected_kind && text.find(part) != std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "expected \"" << part << "\" of kind " << to_string(expected_kind)
                                       << ", got: " << with_kind();
  }
};

template <typename Action>
Caught error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return {.kind = error.kind(), .text = error.what()};
  }
  return {};
}

}  // namespace strake
