#include <arrow/api.h>
#include <gmock/gmock.h>

#include "strake/data/joint_schema_arrow.h"
#include "strake/data/table_arrow.h"
#include "strake/data/test_folder.h"

namespace strake::data::joint_schema_test {
namespace {

using arrow::field;
using SchemaPtr = std::shared_ptr<arrow::Schema>;
using TypePtr = std::shared_ptr<arrow::DataType>;

SchemaPtr joint(const SchemaPtr& first, const SchemaPtr& other) {
  return joint_schema(first, other, {.first = "a.parquet", .other = "b.parquet"});
}

SchemaPtr joint(const TypePtr& first, const TypePtr& other) {
  return joint(arrow::schema({field("x", first)}), arrow::schema({field("x", other)}));
}

Caught problem(const SchemaPtr& first, const SchemaPtr& other) {
  return error_of([&] { joint(first, other); });
}

TEST(JointSchema, HasTheOrderOfTheFirstFileAndIsNullableWhereEitherIs) {
  const auto first = arrow::schema({field("a", arrow::int64(), false), field("b", arrow::utf8(), false)});
  const auto other = arrow::schema({field("b", arrow::utf8()), field("a", arrow::int64(), false)});
  const auto both = joint(first, other);
  EXPECT_TRUE(both->Equals(*arrow::schema({field("a", arrow::int64(), false), field("b", arrow::utf8())})))
      << both->ToString();
  EXPECT_TRUE(joint(both, first)->Equals(*both));
}

TEST(JointSchema, TakesFormsOfOneTypeAsTheFirstFileHasThem) {
  const auto is = [](const TypePtr& first, const TypePtr& other, const TypePtr& expected) {
    const auto both = joint(first, other);
    EXPECT_TRUE(both->field(0)->type()->Equals(*expected)) << both->ToString();
    EXPECT_TRUE(both->field(0)->nullable());
  };
  const std::vector<TypePtr> strings{arrow::utf8(), arrow::large_utf8(), arrow::utf8_view()};
  for (const auto& first : strings) {
    for (const auto& other : strings) is(first, other, first);
  }
  is(arrow::large_binary(), arrow::binary(), arrow::large_binary());
  is(arrow::null(), arrow::int64(), arrow::int64());
  is(arrow::int64(), arrow::null(), arrow::int64());
  is(arrow::list(arrow::null()), arrow::large_list(arrow::large_utf8()), arrow::list(arrow::large_utf8()));
  is(arrow::struct_({field("k", arrow::utf8(), false)}), arrow::struct_({field("k", arrow::large_utf8())}),
     arrow::struct_({field("k", arrow::utf8())}));
}

// pandas gives a categorical column indices as wide as its number of categories asks for.
TEST(JointSchema, UnpacksDictionariesThatDiffer) {
  const auto of = [](const TypePtr& index, const TypePtr& value) { return arrow::dictionary(index, value); };
  const auto is = [](const TypePtr& first, const TypePtr& other, const TypePtr& expected) {
    EXPECT_TRUE(joint(first, other)->field(0)->type()->Equals(*expected)) << joint(first, other)->ToString();
  };
  is(of(arrow::int8(), arrow::utf8()), of(arrow::int8(), arrow::utf8()), of(arrow::int8(), arrow::utf8()));
  is(of(arrow::int8(), arrow::utf8()), of(arrow::int16(), arrow::utf8()), arrow::utf8());
  is(of(arrow::int8(), arrow::utf8()), arrow::utf8(), arrow::utf8());
  is(arrow::large_utf8(), of(arrow::int8(), arrow::utf8()), arrow::large_utf8());
  is(of(arrow::int8(), arrow::int64()), of(arrow::int32(), arrow::int64()), arrow::int64());
}

TEST(JointSchema, RefusesOtherTypesAndColumns) {
  const auto of = [](const TypePtr& type) { return arrow::schema({field("x", type)}); };
  EXPECT_TRUE(
      problem(of(arrow::int64()), of(arrow::int32()))
          .says(ErrorKind::kData,
                "b.parquet: its columns differ from those of a.parquet: column 'x' has the type int32, not int64"));
  EXPECT_TRUE(problem(of(arrow::utf8()), of(arrow::binary())).says(ErrorKind::kData, "binary, not string"));
  EXPECT_TRUE(problem(of(arrow::list(arrow::int64())), of(arrow::list(arrow::utf8()))).says(ErrorKind::kData, "list<"));
  EXPECT_TRUE(problem(of(arrow::struct_({field("k", arrow::utf8())})), of(arrow::struct_({field("l", arrow::utf8())})))
                  .says(ErrorKind::kData, "struct<l"));
  EXPECT_TRUE(problem(of(arrow::int64()), of(arrow::dictionary(arrow::int32(), arrow::utf8())))
                  .says(ErrorKind::kData, "dictionary"));
  const auto two = arrow::schema({field("x", arrow::utf8()), field("y", arrow::utf8())});
  EXPECT_TRUE(problem(of(arrow::utf8()), two).says(ErrorKind::kData, "column 'y' is not in a.parquet"));
  EXPECT_TRUE(problem(two, of(arrow::utf8())).says(ErrorKind::kData, "column 'y' is not in b.parquet"));
}

TEST(JointSchema, NamesThatOccurTwiceMustStandAtTheSamePlaces) {
  const auto first = arrow::schema({field("x", arrow::utf8()), field("x", arrow::int64()), field("y", arrow::utf8())});
  EXPECT_TRUE(joint(first, first)->Equals(*first));
  const auto moved = arrow::schema({first->field(2), first->field(0), first->field(1)});
  EXPECT_TRUE(problem(first, moved).says(ErrorKind::kData, "column 'x' occurs several times"));
}

TEST(JointSchema, JsonTextIsNotTakenForStrings) {
  const auto json = field("x", arrow::utf8())->WithMetadata(arrow::key_value_metadata({kJsonFieldKey}, {"1"}));
  EXPECT_TRUE(is_json(*joint(arrow::schema({field("x", arrow::utf8())}), arrow::schema({json}))->field(0)));
  EXPECT_TRUE(is_json(*joint(arrow::schema({json}), arrow::schema({field("x", arrow::utf8())}))->field(0)));
}

TEST(JointSchema, RowsAreOrderedAndCast) {
  const auto first = arrow::schema({field("n", arrow::int64(), false), field("x", arrow::utf8())});
  arrow::LargeStringBuilder texts;
  ASSERT_TRUE(texts.AppendValues({"a", "b"}).ok());
  ASSERT_TRUE(texts.AppendNull().ok());
  const auto other = arrow::schema({field("x", arrow::large_utf8()), field("n", arrow::null())});
  const auto batch =
      arrow::RecordBatch::Make(other, 3, {texts.Finish().ValueOrDie(), std::make_shared<arrow::NullArray>(3)});
  const auto rows = with_schema(batch, joint(first, other), "b.parquet");
  ASSERT_TRUE(rows->ValidateFull().ok());
  EXPECT_EQ(rows->schema()->field_names(), first->field_names());
  EXPECT_EQ(rows->column(0)->null_count(), 3);
  EXPECT_EQ(rows->column(0)->type_id(), arrow::Type::INT64);
  const auto& strings = dynamic_cast<const arrow::StringArray&>(*rows->column(1));
  EXPECT_EQ(strings.GetView(1), "b");
  EXPECT_TRUE(strings.IsNull(2));
}

}  // namespace
}  // namespace strake::data::joint_schema_test
