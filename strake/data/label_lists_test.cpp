#include "strake/data/label_lists.h"

#include <arrow/api.h>
#include <arrow/json/from_string.h>
#include <gmock/gmock.h>

#include "strake/data/table_arrow.h"
#include "strake/data/table_reader.h"
#include "strake/data/test_folder.h"

namespace strake::data::label_lists_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Lists = std::vector<std::vector<std::string>>;

class LabelListsTest : public FolderTest {
 protected:
  Lists of_json_lines(const std::string& lines) const {
    TableReader reader({.paths = {write("a.jsonl", lines)}});
    return label_lists(*reader.next(), "topics");
  }
};

Table table_of(const std::shared_ptr<arrow::Array>& array) {
  auto content = std::make_shared<Table::Content>();
  content->batch =
      arrow::RecordBatch::Make(arrow::schema({arrow::field("topics", array->type())}), array->length(), {array});
  content->file = "file";
  return Table(std::move(content));
}

// [values 0 and 1], [], [value 2]
template <typename ListBuilder, typename ValueBuilder, typename Value>
std::shared_ptr<arrow::Array> lists(const std::shared_ptr<ValueBuilder>& values, const std::vector<Value>& items) {
  ListBuilder builder(arrow::default_memory_pool(), values);
  EXPECT_TRUE(builder.Append().ok() && values->Append(items[0]).ok() && values->Append(items[1]).ok() &&
              builder.Append().ok() && builder.Append().ok() && values->Append(items[2]).ok());
  return builder.Finish().ValueOrDie();
}

std::shared_ptr<arrow::Array> texts() {
  return lists<arrow::ListBuilder>(std::make_shared<arrow::StringBuilder>(),
                                   std::vector<std::string>{"sport", "law", "art"});
}

TEST_F(LabelListsTest, ReadsListsOfStringsIntegersAndBooleans) {
  EXPECT_THAT(label_lists(table_of(texts()), "topics"),
              ElementsAre(ElementsAre("sport", "law"), IsEmpty(), ElementsAre("art")));
  const auto integers =
      lists<arrow::LargeListBuilder>(std::make_shared<arrow::Int8Builder>(), std::vector<int8_t>{7, -1, 0});
  EXPECT_THAT(label_lists(table_of(integers), "topics"),
              ElementsAre(ElementsAre("7", "-1"), IsEmpty(), ElementsAre("0")));
  const auto booleans =
      lists<arrow::ListBuilder>(std::make_shared<arrow::BooleanBuilder>(), std::vector<bool>{true, false, true});
  EXPECT_THAT(label_lists(table_of(booleans), "topics"),
              ElementsAre(ElementsAre("true", "false"), IsEmpty(), ElementsAre("true")));
  auto nothing = std::make_shared<arrow::NullBuilder>();
  arrow::ListBuilder of_nothing(arrow::default_memory_pool(), nothing);
  ASSERT_TRUE(of_nothing.Append().ok());
  EXPECT_THAT(label_lists(table_of(of_nothing.Finish().ValueOrDie()), "topics"), ElementsAre(IsEmpty()));
}

std::shared_ptr<arrow::Array> from_json(const std::shared_ptr<arrow::DataType>& type, const std::string& rows) {
  return arrow::json::ArrayFromJSONString(type, rows).ValueOrDie();
}

TEST_F(LabelListsTest, ReadsEveryKindOfList) {
  const auto pairs = from_json(arrow::fixed_size_list(arrow::utf8(), 2), R"([["a", "b"], ["c", "d"]])");
  EXPECT_THAT(label_lists(table_of(pairs), "topics"), ElementsAre(ElementsAre("a", "b"), ElementsAre("c", "d")));
  EXPECT_THAT(label_lists(table_of(pairs).slice(1, 2), "topics"), ElementsAre(ElementsAre("c", "d")));
  const auto view = from_json(arrow::list_view(arrow::utf8()), R"([["a"]])");
  EXPECT_TRUE(error_of([&] {
                holds_lists(table_of(view), "topics");
              }).says(ErrorKind::kData, "column 'topics' has the type list_view<item: string>; of lists, list,"));
  EXPECT_TRUE(error_of([&] { label_lists(table_of(view), "topics"); }).says(ErrorKind::kData, "the type list_view"));
  for (const auto& type :
       {arrow::large_list(arrow::utf8()), arrow::list(arrow::dictionary(arrow::int8(), arrow::utf8()))}) {
    EXPECT_THAT(label_lists(table_of(from_json(type, R"([["a"], [], ["b", "a"]])")), "topics"),
                ElementsAre(ElementsAre("a"), IsEmpty(), ElementsAre("b", "a")))
        << type->ToString();
  }
  const auto categories = from_json(arrow::list(arrow::dictionary(arrow::int8(), arrow::int32())), "[[7, 8], [7]]");
  EXPECT_THAT(label_lists(table_of(categories), "topics"), ElementsAre(ElementsAre("7", "8"), ElementsAre("7")));
}

TEST_F(LabelListsTest, BelievesMetadataOfStringsOnly) {
  const auto said = [](const std::shared_ptr<arrow::Array>& array) {
    auto content = std::make_shared<Table::Content>();
    const auto field =
        arrow::field("topics", array->type())->WithMetadata(arrow::key_value_metadata({kJsonFieldKey}, {"1"}));
    content->batch = arrow::RecordBatch::Make(arrow::schema({field}), array->length(), {array});
    content->file = "file";
    return Table(std::move(content));
  };
  EXPECT_THAT(label_lists(said(from_json(arrow::utf8(), R"(["[\"a\"]"])")), "topics"), ElementsAre(ElementsAre("a")));
  EXPECT_THAT(label_lists(said(texts()), "topics"),
              ElementsAre(ElementsAre("sport", "law"), IsEmpty(), ElementsAre("art")));
  for (const auto& type : {arrow::int64(), arrow::boolean()}) {
    const Table table = said(from_json(type, "[0]"));
    EXPECT_FALSE(holds_lists(table, "topics"));
    EXPECT_TRUE(error_of([&] { label_lists(table, "topics"); }).says(ErrorKind::kData, "has the type"));
  }
  EXPECT_TRUE(error_of([&] {
                label_lists(said(from_json(arrow::utf8(), R"(["no JSON"])")), "topics");
              }).says(ErrorKind::kData, "file, row 0"));
}

TEST_F(LabelListsTest, ReadsSomeOfTheRows) {
  EXPECT_THAT(label_lists(table_of(texts()).slice(1, 3), "topics"), ElementsAre(IsEmpty(), ElementsAre("art")));
  EXPECT_THAT(label_lists(table_of(texts()).slice(0, 0), "topics"), IsEmpty());
}

TEST_F(LabelListsTest, ReadsJsonLines) {
  EXPECT_THAT(of_json_lines("{\"topics\": [\"a\", \"b\"]}\n{\"topics\": []}\n{\"topics\": [3, true, \"c\"]}\n"),
              ElementsAre(ElementsAre("a", "b"), IsEmpty(), ElementsAre("3", "true", "c")));
}

TEST_F(LabelListsTest, TellsListsFromOtherColumns) {
  EXPECT_TRUE(holds_lists(table_of(texts()), "topics"));
  EXPECT_FALSE(holds_lists(table_of(std::static_pointer_cast<arrow::ListArray>(texts())->values()), "topics"));
  EXPECT_TRUE(error_of([&] { holds_lists(table_of(texts()), "topic"); }).says(ErrorKind::kData, "did you mean"));
}

TEST_F(LabelListsTest, RefusesWhatAreNoLists) {
  const auto flat = std::static_pointer_cast<arrow::ListArray>(texts())->values();
  EXPECT_TRUE(error_of([&] { label_lists(table_of(flat), "topics"); }).says(ErrorKind::kData, "the type string"));
  const auto decimals = lists<arrow::ListBuilder>(std::make_shared<arrow::FloatBuilder>(), std::vector<float>{0, 1, 0});
  EXPECT_TRUE(error_of([&] {
                label_lists(table_of(decimals), "topics");
              }).says(ErrorKind::kData, "column 'topics' has the type list<item: float>, expected a list of strings"));
  for (const std::string row : {"{\"topics\": \"a\"}", "{\"topics\": {\"a\": 1}}", "{\"topics\": [[\"a\"]]}",
                                "{\"topics\": [null]}", "{\"topics\": [0.5]}", "{\"topics\": null}", "{}"}) {
    const std::string lines = "{\"topics\": [\"a\"]}\n" + row + "\n";
    EXPECT_TRUE(error_of([&] { of_json_lines(lines); }).says(ErrorKind::kData, "row 1, line 2: column 'topics' has"))
        << row;
  }
}

TEST_F(LabelListsTest, RefusesNull) {
  auto values = std::make_shared<arrow::StringBuilder>();
  arrow::ListBuilder builder(arrow::default_memory_pool(), values);
  ASSERT_TRUE(builder.Append().ok() && builder.AppendNull().ok());
  EXPECT_TRUE(error_of([&] {
                label_lists(table_of(builder.Finish().ValueOrDie()), "topics");
              }).says(ErrorKind::kData, "file, row 1: column 'topics' has null"));
  ASSERT_TRUE(builder.Append().ok() && values->Append("a").ok() && values->AppendNull().ok());
  EXPECT_TRUE(error_of([&] {
                label_lists(table_of(builder.Finish().ValueOrDie()), "topics");
              }).says(ErrorKind::kData, "file, row 0: column 'topics' has a list with null"));
}

}  // namespace
}  // namespace strake::data::label_lists_test
