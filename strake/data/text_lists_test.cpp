#include "strake/data/text_lists.h"

#include <arrow/api.h>
#include <arrow/json/from_string.h>
#include <gmock/gmock.h>

#include "strake/data/table_arrow.h"
#include "strake/data/table_reader.h"
#include "strake/data/test_folder.h"

namespace strake::data::text_lists_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Lists = std::vector<std::vector<std::string>>;

class TextListsTest : public FolderTest {
 protected:
  Table read(const std::string& lines) const {
    TableReader reader({.paths = {write("a.jsonl", lines)}});
    return *reader.next();
  }
  Lists of_json_lines(const std::string& lines) const { return text_lists(read(lines), "answers"); }
};

Table table_of(const std::shared_ptr<arrow::Array>& array) {
  auto content = std::make_shared<Table::Content>();
  content->batch =
      arrow::RecordBatch::Make(arrow::schema({arrow::field("answers", array->type())}), array->length(), {array});
  content->file = "file";
  return Table(std::move(content));
}

// ["a", "b"], [], null, ["c"]
std::shared_ptr<arrow::Array> lists() {
  auto values = std::make_shared<arrow::StringBuilder>();
  arrow::ListBuilder builder(arrow::default_memory_pool(), values);
  EXPECT_TRUE(builder.Append().ok() && values->AppendValues({"a", "b"}).ok() && builder.Append().ok() &&
              builder.AppendNull().ok() && builder.Append().ok() && values->Append("c").ok());
  return builder.Finish().ValueOrDie();
}

// The array as the member of objects, the first of which is null.
std::shared_ptr<arrow::Array> objects(const std::shared_ptr<arrow::Array>& texts, const std::string& name) {
  auto valid = arrow::AllocateEmptyBitmap(texts->length()).ValueOrDie();
  for (int64_t i = 1; i < texts->length(); ++i) arrow::bit_util::SetBit(valid->mutable_data(), i);
  return arrow::StructArray::Make({texts}, std::vector<std::string>{name}, std::move(valid)).ValueOrDie();
}

TEST_F(TextListsTest, ReadsListsAndObjectsOfArrow) {
  EXPECT_THAT(text_lists(table_of(lists()), "answers"),
              ElementsAre(ElementsAre("a", "b"), IsEmpty(), IsEmpty(), ElementsAre("c")));
  const Table in_objects = table_of(objects(lists(), "text"));
  EXPECT_THAT(text_lists(in_objects, "answers"), ElementsAre(IsEmpty(), IsEmpty(), IsEmpty(), ElementsAre("c")));
  EXPECT_THAT(text_lists(in_objects.slice(2, 4), "answers"), ElementsAre(IsEmpty(), ElementsAre("c")));
  EXPECT_THAT(text_lists(table_of(lists()).slice(0, 1), "answers"), ElementsAre(ElementsAre("a", "b")));
  EXPECT_THAT(text_lists(table_of(lists()).slice(0, 0), "answers"), IsEmpty());
}

TEST_F(TextListsTest, ReadsPlainTextsAlsoOfADictionary) {
  const auto flat = std::static_pointer_cast<arrow::ListArray>(lists())->values();
  EXPECT_THAT(text_lists(table_of(flat), "answers"), ElementsAre(ElementsAre("a"), ElementsAre("b"), ElementsAre("c")));
  arrow::StringDictionaryBuilder builder;
  EXPECT_TRUE(builder.Append("x").ok() && builder.AppendNull().ok() && builder.Append("x").ok());
  EXPECT_THAT(text_lists(table_of(builder.Finish().ValueOrDie()), "answers"),
              ElementsAre(ElementsAre("x"), IsEmpty(), ElementsAre("x")));
  EXPECT_THAT(text_lists(table_of(arrow::MakeArrayOfNull(arrow::null(), 1).ValueOrDie()), "answers"),
              ElementsAre(IsEmpty()));
}

TEST_F(TextListsTest, ReadsAllFormsOfJsonLines) {
  EXPECT_THAT(of_json_lines("{\"answers\": {\"text\": [\"a\", \"b\"], \"answer_start\": [0, 5]}}\n"
                            "{\"answers\": {\"text\": [], \"answer_start\": []}}\n"
                            "{\"answers\": null}\n"
                            "{\"answers\": [{\"text\": \"c\", \"answer_start\": 3}, {\"text\": \"d\"}]}\n"
                            "{\"answers\": \"e\"}\n"
                            "{\"answers\": [\"\\u00e9\", null]}\n"),
              ElementsAre(ElementsAre("a", "b"), IsEmpty(), IsEmpty(), ElementsAre("c", "d"), ElementsAre("e"),
                          ElementsAre("\u00E9")));
  EXPECT_THAT(of_json_lines("{\"answers\": \"{a}\"}\n"), ElementsAre(ElementsAre("{a}"))) << "a plain text";
}

TEST_F(TextListsTest, RefusesWhatHoldsNoTexts) {
  const auto refusal = [](const std::shared_ptr<arrow::Array>& array) {
    return error_of([&] { text_lists(table_of(array), "answers"); });
  };
  EXPECT_TRUE(refusal(objects(lists(), "texts")).says(ErrorKind::kData, "file: column 'answers' has the type struct<"));
  EXPECT_TRUE(refusal(objects(objects(lists(), "text"), "text")).says(ErrorKind::kData, "has the type struct<"));
  EXPECT_TRUE(refusal(arrow::MakeArrayOfNull(arrow::list(arrow::int32()), 2).ValueOrDie())
                  .says(ErrorKind::kData, "has the type list<"));
  EXPECT_TRUE(refusal(arrow::MakeArrayOfNull(arrow::list(arrow::list(arrow::utf8())), 2).ValueOrDie())
                  .says(ErrorKind::kData, "expected a text, a list of texts"));
  EXPECT_TRUE(refusal(arrow::MakeArrayOfNull(arrow::int32(), 2).ValueOrDie()).says(ErrorKind::kData, "int32"));
  EXPECT_TRUE(error_of([] { text_lists(table_of(lists()), "truths"); }).says(ErrorKind::kData, "no column 'truths'"));
}

TEST_F(TextListsTest, NamesTheRowOfJsonThatHoldsNoTexts) {
  for (const char* value :
       {"[1]", "[[\"a\"]]", "{\"answer\": \"a\"}", "{\"text\": {\"text\": \"a\"}}", "[{\"text\": [\"a\"]}]"}) {
    const std::string lines = std::string("{\"answers\": [\"a\"]}\n{\"answers\": ") + value + "}\n";
    const Caught caught = error_of([&] { of_json_lines(lines); });
    EXPECT_TRUE(caught.says(ErrorKind::kData, "row 1, line 2: column 'answers' has")) << value;
  }
}

using Places = std::vector<std::vector<std::pair<std::string, int64_t>>>;

Places places_of(const Table& table) {
  Places places;
  for (const auto& row : placed_texts(table, "answers")) {
    auto& of_row = places.emplace_back();
    for (const PlacedText& text : row) of_row.emplace_back(text.text, text.start);
  }
  return places;
}

TEST_F(TextListsTest, ReadsWhereAnswersBegin) {
  const Places expected{{{"a", 0}, {"b", 5}}, {}, {}, {{"c", 3}, {"d", 1}}, {{"e", 7}}};
  EXPECT_EQ(places_of(read("{\"answers\": {\"text\": [\"a\", \"b\"], \"answer_start\": [0, 5]}}\n"
                           "{\"answers\": {\"text\": [], \"answer_start\": []}}\n"
                           "{\"answers\": null}\n"
                           "{\"answers\": [{\"text\": \"c\", \"answer_start\": 3}, "
                           "{\"text\": \"d\", \"answer_start\": 1}]}\n"
                           "{\"answers\": {\"text\": \"e\", \"answer_start\": 7}}\n")),
            expected);
  for (const auto& type : {arrow::int32(), arrow::int64()}) {
    const auto column = arrow::json::ArrayFromJSONString(
        arrow::struct_(
            {arrow::field("text", arrow::list(arrow::utf8())), arrow::field("answer_start", arrow::list(type))}),
        R"([{"text": ["a", "b"], "answer_start": [0, 5]}, null, {"text": null, "answer_start": null}])");
    EXPECT_EQ(places_of(table_of(column.ValueOrDie())), (Places{{{"a", 0}, {"b", 5}}, {}, {}}));
  }
}

TEST_F(TextListsTest, RefusesAnswersWithoutAPlace) {
  const auto refusal = [&](const std::string& answers) {
    return error_of([&] { places_of(read("{\"answers\": null}\n{\"answers\": " + answers + "}\n")); });
  };
  for (const char* answers :
       {"[\"a\"]", "{\"text\": [\"a\"]}", "{\"text\": [\"a\"], \"answer_start\": [1.5]}",
        "{\"text\": [\"a\"], \"answer_start\": [\"1\"]}", "{\"text\": [1], \"answer_start\": [1]}"}) {
    EXPECT_TRUE(refusal(answers).says(ErrorKind::kData, "row 1, line 2: column 'answers' has")) << answers;
  }
  EXPECT_TRUE(refusal(R"({"text": ["a"], "answer_start": []})")
                  .says(ErrorKind::kData, "row 1, line 2: column 'answers' has 1 of 'text'"));
  EXPECT_TRUE(refusal(R"({"text": ["a"], "answer_start": [-2]})").says(ErrorKind::kData, "has the answer_start -2"));
  EXPECT_TRUE(refusal("\"a\"").says(ErrorKind::kData, "a.jsonl: column 'answers' has the type string"));
  EXPECT_TRUE(error_of([] {
                placed_texts(table_of(lists()), "answers");
              }).says(ErrorKind::kData, "expected an object with members 'text' and 'answer_start'"));
}

}  // namespace
}  // namespace strake::data::text_lists_test
