#include "strake/data/class_names.h"

#include <arrow/api.h>
#include <arrow/json/from_string.h>
#include <gmock/gmock.h>

#include "strake/core/test_error.h"
#include "strake/data/table_arrow.h"

namespace strake::data::class_names_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Table table_with(const std::string& features, const std::shared_ptr<arrow::DataType>& type = arrow::int64()) {
  auto content = std::make_shared<Table::Content>();
  const auto array = arrow::json::ArrayFromJSONString(type, "[]").ValueOrDie();
  content->batch = arrow::RecordBatch::Make(arrow::schema({arrow::field("label", type)}), 0, {array});
  content->file = "a.parquet";
  content->metadata = arrow::key_value_metadata({"huggingface"}, {features});
  return Table(std::move(content));
}

std::string features_of(const std::string& feature) { return R"({"info":{"features":{"label":)" + feature + "}}}"; }

constexpr const char* kClass = R"({"names":["pos","neg"],"_type":"ClassLabel"})";

TEST(ClassNames, AreThoseOfTheFeatures) {
  EXPECT_THAT(class_names(table_with(features_of(kClass)), "label"), ElementsAre("pos", "neg"));
  const auto lists = arrow::list(arrow::int32());
  for (const std::string& list :
       {std::string(R"({"feature":)") + kClass + R"(,"_type":"Sequence"})", std::string("[") + kClass + "]"}) {
    EXPECT_THAT(class_names(table_with(features_of(list), lists), "label"), ElementsAre("pos", "neg"));
  }
}

TEST(ClassNames, AreNoneWhereTheFileDoesNotSay) {
  for (const std::string text : {"", "{", "[]", R"({"info":7})", R"({"info":{"features":{"other":1}}})",
                                 R"({"info":{"features":{"label":[]}}})"}) {
    EXPECT_THAT(class_names(table_with(text), "label"), IsEmpty()) << text;
  }
  for (const std::string feature :
       {R"({"dtype":"int64","_type":"Value"})", R"({"names":["a",1],"_type":"ClassLabel"})",
        R"({"num_classes":2,"_type":"ClassLabel"})", R"({"names":"a","_type":"ClassLabel"})"}) {
    EXPECT_THAT(class_names(table_with(features_of(feature)), "label"), IsEmpty()) << feature;
  }
  EXPECT_THAT(class_names(table_with(features_of(kClass), arrow::utf8()), "label"), IsEmpty()) << "text has its own";
}

TEST(ClassNames, MustDiffer) {
  const Table table = table_with(features_of(R"({"names":["a","b","a"],"_type":"ClassLabel"})"));
  EXPECT_EQ(error_of([&] { class_names(table, "label"); }).text,
            "a.parquet: its metadata 'huggingface' gives column 'label' two classes called 'a'");
}

}  // namespace
}  // namespace strake::data::class_names_test
