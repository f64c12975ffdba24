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
  if (argc == 1) return RUN_ALL_TESTS();
  const std::string_view argument = argv[1];
  if (argc > 2 || !argument.starts_with(kSourceFlag)) {
    std::fprintf(stderr, "%s: expected one --source=FILE and flags of GoogleTest\n", argv[argc - 1]);
    return 2;
  }
  const std::string filter = tests_in(argument.substr(kSourceFlag.size()));
  if (filter.empty()) {
    std::fprintf(stderr, "%s: no test is written there\n", argv[1]);
    return 2;
  }
  // A test that starts the program again, as death tests do, names itself by a filter.
  if (GTEST_FLAG_GET(filter) == "*") GTEST_FLAG_SET(filter, filter);
  return RUN_ALL_TESTS();
}
