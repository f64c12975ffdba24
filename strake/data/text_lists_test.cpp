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

Table table_of(const std::shared_ptr<arrow::Array>& array,
               std::shared_ptr<arrow::KeyValueMetadata> metadata = nullptr) {
  auto content = std::make_shared<Table::Content>();
  const auto field = arrow::field("answers", array->type(), true, std::move(metadata));
  content->batch = arrow::RecordBatch::Make(arrow::schema({field}), array->length(), {array});
  content->file = "file";
  return Table(std::move(content));
}

Table json_table_of(const std::shared_ptr<arrow::Array>& array) {
  return table_of(array, arrow::key_value_metadata({kJsonFieldKey}, {"1"}));
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

TEST_F(TextListsTest, RefusesAnObjectWrittenAsAText) {
  const std::string found = "column 'answers' has an object written as a text, {";
  for (const char* text : {R"({"text": ["good"], "answer_start": [13]})",
                           R"({'text': array(['good'], dtype=object), 'answer_start': array([13])})"}) {
    arrow::StringBuilder plain;
    arrow::StringDictionaryBuilder categories;
    EXPECT_TRUE(plain.Append("good").ok() && plain.Append(text).ok() && categories.Append("good").ok() &&
                categories.Append(text).ok());
    for (const auto& array : {std::shared_ptr<arrow::Array>(plain.Finish().ValueOrDie()),
                              std::shared_ptr<arrow::Array>(categories.Finish().ValueOrDie())}) {
      EXPECT_TRUE(error_of([&] { text_lists(table_of(array), "answers"); }).says(ErrorKind::kData, "row 1: " + found));
    }
    const std::string lines = "{\"answers\": [\"a\"]}\n{\"answers\": " + Json(text).dump() + "}\n";
    EXPECT_TRUE(error_of([&] { of_json_lines(lines); }).says(ErrorKind::kData, "row 1, line 2: " + found));
    EXPECT_THAT(of_json_lines("{\"answers\": [" + Json(text).dump() + "]}\n"), ElementsAre(ElementsAre(text)));
  }
  EXPECT_THAT(of_json_lines("{\"answers\": \"{\\\"a\\\": 1}\"}\n"), ElementsAre(ElementsAre("{\"a\": 1}")));
}

TEST_F(TextListsTest, SkipsNullOnlyInListsOfTextsAlone) {
  const auto of_arrow = [](const std::shared_ptr<arrow::DataType>& type, const char* rows) {
    return text_lists(table_of(arrow::json::ArrayFromJSONString(type, rows).ValueOrDie()), "answers");
  };
  EXPECT_THAT(of_arrow(arrow::list(arrow::utf8()), R"([[null, "a"]])"), ElementsAre(ElementsAre("a")));
  const auto object = [](const std::shared_ptr<arrow::DataType>& type) {
    return arrow::struct_({arrow::field("text", type)});
  };
  const std::string message = "row 1: column 'answers' has a list with null, expected one 'text' for each answer";
  for (const auto& [type, rows] : {std::pair{object(arrow::list(arrow::utf8())), R"([null, {"text": [null, "a"]}])"},
                                   std::pair{arrow::list(object(arrow::utf8())), R"([[], [{"text": null}]])"},
                                   std::pair{arrow::list(object(arrow::utf8())), R"([[], [null, {"text": "a"}]])"}}) {
    EXPECT_TRUE(error_of([&] { of_arrow(type, rows); }).says(ErrorKind::kData, "file, " + message)) << rows;
  }
  for (const char* row : {R"({"text": [null, "a"]})", R"([{"text": null}])", R"([null, {"text": "a"}])"}) {
    const std::string lines = std::string("{\"answers\": [null]}\n{\"answers\": ") + row + "}\n";
    EXPECT_TRUE(error_of([&] { of_json_lines(lines); })
                    .says(ErrorKind::kData,
                          "row 1, line 2: column 'answers' has a "
                          "list with null"))
        << row;
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
}

// Answers with lists of both members.
std::shared_ptr<arrow::Array> answers_of(const std::shared_ptr<arrow::DataType>& texts,
                                         const std::shared_ptr<arrow::DataType>& starts, const char* rows) {
  const auto type = arrow::struct_({arrow::field("text", texts), arrow::field("answer_start", starts)});
  return arrow::json::ArrayFromJSONString(type, rows).ValueOrDie();
}

TEST_F(TextListsTest, ReadsPlacesOfAllIntegersInAllLists) {
  const char* rows = R"([{"text": ["a", "b"], "answer_start": [0, 5]}, null, {"text": null, "answer_start": null}])";
  const Places expected{{{"a", 0}, {"b", 5}}, {}, {}};
  for (const auto& type : {arrow::int8(), arrow::int16(), arrow::int32(), arrow::int64(), arrow::uint8(),
                           arrow::uint16(), arrow::uint32(), arrow::uint64()}) {
    const auto column = answers_of(arrow::list(arrow::utf8()), arrow::list(type), rows);
    EXPECT_EQ(places_of(table_of(column)), expected) << type->ToString();
  }
  const auto large = answers_of(arrow::large_list(arrow::utf8()), arrow::large_list(arrow::int32()), rows);
  EXPECT_EQ(places_of(table_of(large)), expected);
  const auto pair_of = [](const std::shared_ptr<arrow::DataType>& type) { return arrow::fixed_size_list(type, 2); };
  const auto fixed = answers_of(pair_of(arrow::utf8()), pair_of(arrow::int32()),
                                R"([{"text": ["a", "b"], "answer_start": [0, 5]}, null,
                                    {"text": null, "answer_start": null},
                                    {"text": ["c", "d"], "answer_start": [6, 7]}])");
  EXPECT_EQ(places_of(table_of(fixed)), (Places{{{"a", 0}, {"b", 5}}, {}, {}, {{"c", 6}, {"d", 7}}}));
  EXPECT_EQ(places_of(table_of(fixed).slice(3, 4)), (Places{{{"c", 6}, {"d", 7}}}));
  EXPECT_TRUE(error_of([&] {
                places_of(table_of(answers_of(arrow::list(arrow::utf8()), arrow::list(arrow::float64()), rows)));
              }).says(ErrorKind::kData, "answer_start: list<item: double>>, expected an object"));
}

TEST_F(TextListsTest, NamesTheRowOfAPlaceBeyondAllTexts) {
  const auto column = answers_of(arrow::list(arrow::utf8()), arrow::list(arrow::uint64()),
                                 R"([null, {"text": ["a"], "answer_start": [9223372036854775808]}])");
  const std::string message =
      "column 'answers' has the answer_start 9223372036854775808, expected at most 9223372036854775807";
  EXPECT_TRUE(error_of([&] { places_of(table_of(column)); }).says(ErrorKind::kData, "file, row 1: " + message));
  const auto json = arrow::json::ArrayFromJSONString(
      arrow::utf8(), R"([null, "{\"text\": [\"a\"], \"answer_start\": [9223372036854775808]}"])");
  EXPECT_TRUE(
      error_of([&] { places_of(json_table_of(json.ValueOrDie())); }).says(ErrorKind::kData, "file, row 1: " + message));
}

TEST_F(TextListsTest, RefusesNullAmongPlacedTexts) {
  const std::string found = "column 'answers' has a list with null, expected one";
  for (const char* rows : {R"([null, {"text": [null, "good"], "answer_start": [13, null]}])",
                           R"([null, {"text": ["good"], "answer_start": [null]}])",
                           R"([null, {"text": [null, "good"], "answer_start": [4, 13]}])"}) {
    const auto column = answers_of(arrow::list(arrow::utf8()), arrow::list(arrow::int32()), rows);
    EXPECT_TRUE(error_of([&] { places_of(table_of(column)); }).says(ErrorKind::kData, "file, row 1: " + found)) << rows;
  }
  for (const char* row :
       {R"({"text": [null, "good"], "answer_start": [13, null]})", R"([{"text": null, "answer_start": null}])",
        R"({"text": [null, "good"], "answer_start": [4, 13]})", R"([null, {"text": "a", "answer_start": 1}])",
        R"([null])"}) {
    const std::string lines = std::string("{\"answers\": []}\n{\"answers\": ") + row + "}\n";
    EXPECT_TRUE(error_of([&] { places_of(read(lines)); }).says(ErrorKind::kData, "row 1, line 2: " + found)) << row;
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
