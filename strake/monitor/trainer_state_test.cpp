#include "strake/monitor/trainer_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "strake/core/file.h"
#include "strake/core/test_error.h"

namespace strake::monitor::trainer_state_test {
namespace {

// Saved by Transformers' TrainerState.save_to_json (tools/make_metrics_fixture.py).
std::string transformers_text() {
  return read_file(std::filesystem::path(STRAKE_SOURCE_DIR) / "strake/monitor/testdata/trainer_state.json",
                   kMaxConfigBytes);
}

std::string error_of(const std::string& text) {
  return strake::error_of(
             [&] { trainer_state_from_json(parse_json(text, "trainer_state.json"), "trainer_state.json"); })
      .text_of(ErrorKind::kConfig);
}

TEST(TrainerState, IsWrittenByteForByteAsTransformersWritesIt) {
  TrainerState state;
  state.epoch = 1.5;
  state.global_step = 30;
  state.max_steps = 60;
  state.logging_steps = 10;
  state.eval_steps = 20;
  state.save_steps = 30;
  state.train_batch_size = 8;
  state.num_train_epochs = 3;
  state.total_flos = 123456789012.0;
  state.best_metric = 0.925;
  state.best_global_step = 20;
  state.best_model_checkpoint = "out/checkpoint-20 \xc3\xa9";
  state.log_history = {
      {{"epoch", 0.5}, {"grad_norm", 1.25}, {"learning_rate", 1.8e-05}, {"loss", 0.6931471805599453}, {"step", 10}},
      {{"epoch", 1.0}, {"eval_accuracy", 0.925}, {"step", 20}}};
  EXPECT_EQ(to_json_text(state), transformers_text());
}

TEST(TrainerState, ReadingAndWritingKeepsEveryField) {
  const TrainerState state = trainer_state_from_json(parse_json(transformers_text(), "t"), "t");
  EXPECT_EQ(state.global_step, 30);
  EXPECT_EQ(state.train_batch_size, 8);
  EXPECT_EQ(state.best_metric, 0.925);
  EXPECT_EQ(state.trial_name, std::nullopt);
  EXPECT_EQ(state.log_history.size(), 2U);
  EXPECT_EQ(to_json_text(state), transformers_text());
}

TEST(TrainerState, AbsentFieldsHaveDefaultsAndCountsMayBeFloats) {
  const TrainerState state = trainer_state_from_json(
      parse_json(R"({"eval_steps": 250.0, "of_a_later_version": 1, "best_metric": null})", "t"), "t");
  EXPECT_EQ(state.eval_steps, 250);
  EXPECT_EQ(state.logging_steps, 500);
  EXPECT_EQ(state.best_metric, std::nullopt);
  EXPECT_EQ(to_json_text(trainer_state_from_json(Json::object(), "t")), to_json_text(TrainerState{}));
}

TEST(TrainerState, NumbersThatAreNotFiniteBecomeNull) {
  TrainerState state;
  state.log_history.push_back({{"loss", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_THAT(to_json_text(state), testing::HasSubstr("\"loss\": null"));
}

TEST(TrainerState, OfALogThatIsTooLongTheNewerEntriesStay) {
  TrainerState state;
  for (int step = 1; step <= 1000; ++step) state.log_history.push_back({{"step", step}});
  const std::string whole = to_json_text(state);
  EXPECT_EQ(to_json_text_within(whole.size(), state), whole);
  const std::string text = to_json_text_within(whole.size() - 1, state);
  EXPECT_LT(text.size(), whole.size());
  EXPECT_EQ(text, to_json_text(state));
  ASSERT_EQ(state.log_history.size(), 500U);
  EXPECT_EQ(state.log_history.front()["step"], 501);
  EXPECT_EQ(state.log_history.back()["step"], 1000);
  to_json_text_within(0, state);
  EXPECT_TRUE(state.log_history.empty());
}

TEST(TrainerState, WrongValuesAreRefusedByKey) {
  EXPECT_THAT(error_of("[]"), testing::HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of(R"({"global_step": -1})"), testing::HasSubstr("'global_step' has the value -1"));
  EXPECT_THAT(error_of(R"({"global_step": 1.5})"), testing::HasSubstr("'global_step' has the value 1.5"));
  EXPECT_THAT(error_of(R"({"max_steps": 1e300})"), testing::HasSubstr("'max_steps'"));
  EXPECT_THAT(error_of(R"({"save_steps": "ten"})"), testing::HasSubstr("'save_steps'"));
  EXPECT_THAT(error_of(R"({"epoch": -0.5})"), testing::HasSubstr("'epoch'"));
  EXPECT_THAT(error_of(R"({"best_metric": "high"})"), testing::HasSubstr("'best_metric'"));
  EXPECT_THAT(error_of(R"({"best_global_step": true})"), testing::HasSubstr("'best_global_step'"));
  EXPECT_THAT(error_of(R"({"log_history": {}})"), testing::HasSubstr("'log_history' is not an array"));
  EXPECT_THAT(error_of(R"({"log_history": [{}, 3]})"), testing::HasSubstr("log_history[1]"));
  EXPECT_THAT(error_of(R"({"trial_params": []})"), testing::HasSubstr("'trial_params' is not an object"));
  EXPECT_THAT(error_of(R"({"stateful_callbacks": 1})"), testing::HasSubstr("'stateful_callbacks' is not an object"));
}

}  // namespace
}  // namespace strake::monitor::trainer_state_test
