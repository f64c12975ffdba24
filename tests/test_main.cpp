// GoogleTest's main() for a module's tests, which are one program: with --source=FILE only those written in FILE run,
// or those of --gtest_filter if there is one.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

namespace {

constexpr std::string_view kSourceFlag = "--source=";

// As a value of --gtest_filter.
std::string tests_in(std::string_view source) {
  std::string filter;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      if (std::filesystem::path(test.file()).filename() != source) continue;
      filter.append(filter.empty() ? "" : ":").append(suite.name()).append(".").append(test.name());
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kSourceFlag)) {
      std::fprintf(stderr, "%s is not a flag; expected --source=FILE or one of GoogleTest's\n", argv[i]);
      return 2;
    }
    const std::string filter = tests_in(argument.substr(kSourceFlag.size()));
    if (filter.empty()) {
      std::fprintf(stderr, "%s: no test is written there\n", argv[i]);
      return 2;
    }
    // A test that starts the program again, as death tests do, names itself by a filter.
    if (GTEST_FLAG_GET(filter) == "*") GTEST_FLAG_SET(filter, filter);
  }
  return RUN_ALL_TESTS();
}
