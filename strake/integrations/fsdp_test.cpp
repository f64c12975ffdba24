#include "strake/integrations/fsdp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strake/core/test_error.h"

namespace strake::integrations::fsdp_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string refusal(const std::string& words, const std::string& config) {
  return error_of([&] { parse_fsdp(words, config); }).with_kind();
}

TEST(Fsdp, TranslatesStrategiesToZeroStages) {
  EXPECT_EQ(parse_fsdp("full_shard auto_wrap", "").stage, 3);
  EXPECT_EQ(parse_fsdp("shard_grad_op", "").stage, 2);
  EXPECT_EQ(parse_fsdp("no_shard", "").stage, 0);
  const FsdpOptions hybrid = parse_fsdp("hybrid_shard_zero2 offload", "");
  EXPECT_EQ(hybrid.stage, 2);
  EXPECT_TRUE(hybrid.hybrid);
  EXPECT_TRUE(hybrid.offload);
  EXPECT_TRUE(parse_fsdp("hybrid_shard", "").hybrid);
  const FsdpOptions plain = parse_fsdp("true", "");
  EXPECT_EQ(plain.stage, 3);
  EXPECT_FALSE(plain.hybrid);
  EXPECT_FALSE(plain.offload);
  EXPECT_FALSE(plain.activation_checkpointing);
}

TEST(Fsdp, NamesStagesInItsOwnWords) {
  EXPECT_EQ(fsdp_word(0, false), "no_shard");
  EXPECT_EQ(fsdp_word(1, false), "shard_grad_op");
  EXPECT_EQ(fsdp_word(2, false), "shard_grad_op");
  EXPECT_EQ(fsdp_word(3, false), "full_shard");
  EXPECT_EQ(fsdp_word(3, true), "hybrid_shard");
}

TEST(Fsdp, TakesWordsInCapitalsAsTorchAndAccelerateWriteThem) {
  EXPECT_EQ(parse_fsdp("FULL_SHARD AUTO_WRAP", "").stage, 3);
  EXPECT_EQ(parse_fsdp("SHARD_GRAD_OP", "").stage, 2);
  EXPECT_EQ(parse_fsdp("NO_SHARD", "").stage, 0);
  EXPECT_TRUE(parse_fsdp("Hybrid_Shard Offload", "").offload);
  EXPECT_EQ(parse_fsdp("True", "").stage, 3);
  EXPECT_EQ(parse_fsdp("", R"({"fsdp_reshard_after_forward": "SHARD_GRAD_OP"})").stage, 2);
  EXPECT_THAT(refusal("FULL_SHARDS", ""),
              HasSubstr("--fsdp: unknown option 'FULL_SHARDS'; did you mean 'full_shard'?"));
  EXPECT_THAT(refusal("FULL_SHARD no_shard", ""), HasSubstr("full_shard and no_shard contradict each other"));
}

TEST(Fsdp, ReadsTheConfigurationWithOrWithoutItsPrefix) {
  const FsdpOptions options = parse_fsdp("full_shard auto_wrap", R"({
      "fsdp_transformer_layer_cls_to_wrap": "BertLayer", "backward_prefetch": "BACKWARD_PRE", "forward_prefetch": false,
      "limit_all_gathers": true, "use_orig_params": "true", "sync_module_states": true, "min_num_params": 0,
      "fsdp_cpu_ram_efficient_loading": true, "activation_checkpointing": true, "xla": false, "version": 1,
      "reshard_after_forward": "full_shard", "fsdp_offload_params": "True", "xla_fsdp_settings": {}})");
  EXPECT_EQ(options.stage, 3);
  EXPECT_TRUE(options.offload);
  EXPECT_TRUE(options.activation_checkpointing);
  EXPECT_THAT(options.notices, IsEmpty());
  EXPECT_EQ(parse_fsdp("", R"({"reshard_after_forward": false})").stage, 2);
  EXPECT_EQ(refusal("true", R"({"version": "2"})"), "no error");
  EXPECT_EQ(refusal("true", R"({"fsdp_version": "1"})"), "no error");
  EXPECT_THAT(parse_fsdp("true", R"({"_comment": "of the large runs"})").notices,
              ElementsAre("taken as comments: _comment"));
  EXPECT_EQ(parse_fsdp("auto_wrap", R"({"reshard_after_forward": "TRUE"})").stage, 3);
  EXPECT_THAT(parse_fsdp("true", R"({"state_dict_type": "SHARDED_STATE_DICT"})").notices,
              ElementsAre(HasSubstr("the model in one piece")));
}

TEST(Fsdp, RefusesUnknownAndContradictoryWords) {
  EXPECT_THAT(refusal("full_shards", ""),
              HasSubstr("--fsdp: unknown option 'full_shards'; did you mean 'full_shard'?"));
  EXPECT_THAT(refusal("full_shard no_shard", ""), HasSubstr("full_shard and no_shard contradict each other"));
  EXPECT_EQ(refusal("no_shard offload", ""), "no error") << "which is for the device to say";
  EXPECT_THAT(refusal("shard_grad_op", R"({"reshard_after_forward": true})"),
              HasSubstr("--fsdp shard_grad_op contradicts reshard_after_forward=true in --fsdp_config (inline)"));
  EXPECT_EQ(refusal("hybrid_shard", R"({"reshard_after_forward": true})"), "no error");
  EXPECT_EQ(refusal("full_shard full_shard", ""), "no error");
}

TEST(Fsdp, IsStrictAboutTheConfiguration) {
  EXPECT_THAT(refusal("true", R"({"min_num_parameters": 1})"), HasSubstr("did you mean 'min_num_params'?"));
  EXPECT_THAT(refusal("true", R"({"min_num_params": "2000"})"), HasSubstr("write 2000 without quotes"));
  EXPECT_THAT(refusal("true", R"({"xla": true})"), HasSubstr("there is no XLA"));
  EXPECT_THAT(refusal("true", R"({"version": 3})"), HasSubstr("3 is not in [1, 2]"));
  EXPECT_THAT(refusal("true", R"({"version": "3"})"), HasSubstr("3 is not in [1, 2]"));
  EXPECT_THAT(refusal("true", R"({"version": "two"})"), HasSubstr("found the text \"two\", expected an integer"));
  EXPECT_THAT(refusal("true", R"({"fsdp_sharding_strategy": "FULL_SHARD"})"), HasSubstr("give it to --fsdp"));
  EXPECT_THAT(refusal("true", R"({"xla": false, "fsdp_xla": false})"), HasSubstr("with and without 'fsdp_'"));
  EXPECT_THAT(refusal("true", R"({"reshard_after_forward": "half_shard"})"), HasSubstr("is none of full_shard"));
  EXPECT_THAT(refusal("true", "missing.json"), HasSubstr("neither a file that exists"));
}

}  // namespace
}  // namespace strake::integrations::fsdp_test
