#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "strake/core/error.h"

namespace strake::data {

// Kind and text of the Error that an action threw.
struct Caught {
  std::optional<ErrorKind> kind;
  std::string text = "no error";

  testing::AssertionResult says(ErrorKind expected_kind, std::string_view part) const {
    if (kind == expected_kind && text.find(part) != std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "expected \"" << part << "\" of kind " << to_string(expected_kind)
                                       << ", got: " << (kind ? to_string(*kind) : "none") << ": " << text;
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

// A folder of its own for each test.
class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("strake_data_test_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, std::string_view content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }

  std::filesystem::path folder_;
};

}  // namespace strake::data
