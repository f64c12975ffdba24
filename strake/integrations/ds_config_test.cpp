#include "strake/integrations/ds_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "strake/core/file.h"
#include "strake/core/test_error.h"
#include "strake/integrations/config_value.h"
#include "strake/integrations/ds_config_keys.h"

namespace strake::integrations::ds_config_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::string refusal(const std::string& argument) {
  return error_of([&] { parse_ds_config(argument); }).text_of(ErrorKind::kConfig);
}

struct Refusal {
  std::string config;
  std::string text;
};

void expect_refused(const std::vector<Refusal>& refusals) {
  for (const auto& [config, text] : refusals) EXPECT_THAT(refusal(config), HasSubstr(text)) << config;
}

TEST(DsSchema, HasEveryKeyOnceBelowASectionThatExists) {
  const Schema& schema = ds_schema();
  std::set<std::string_view> paths;
  for (const KeyRule& rule : schema.rules) {
    EXPECT_TRUE(paths.insert(rule.path).second) << rule.path;
    const size_t dot = rule.path.rfind('.');
    if (dot == std::string_view::npos) continue;
    const KeyRule* parent = schema.find(rule.path.substr(0, dot));
    ASSERT_NE(parent, nullptr) << rule.path;
    EXPECT_EQ(parent->type, ValueType::kSection) << rule.path;
  }
  for (const KeyAlias& alias : schema.aliases) {
    EXPECT_NE(schema.find(alias.canonical), nullptr) << alias.path;
    EXPECT_EQ(schema.find(alias.path), nullptr) << alias.path;
  }
}

TEST(DsSchema, HasDefaultsThatItsOwnRulesAccept) {
  for (const KeyRule& rule : ds_schema().rules) {
    const auto checked = check_value(rule, rule.default_value());
    ASSERT_TRUE(std::holds_alternative<Json>(checked)) << rule.path;
    EXPECT_EQ(std::get<Json>(checked), rule.default_value()) << rule.path;
    EXPECT_FALSE(is_set(rule, rule.default_value())) << rule.path;
    const bool explained = rule.status == KeyStatus::kHonoured || !rule.reason.empty();
    EXPECT_TRUE(explained) << rule.path;
  }
}

TEST(DsSchema, RefusesNoKeyAtItsDefaultAndEveryRefusedSwitchWhenOn) {
  for (const KeyRule& rule : ds_schema().rules) {
    if (rule.type != ValueType::kBool) continue;
    for (const bool value : {false, true}) {
      Json config = value;
      for (size_t end = rule.path.size(); end != std::string_view::npos && end > 0;) {
        const size_t dot = rule.path.rfind('.', end - 1);
        const size_t start = dot == std::string_view::npos ? 0 : dot + 1;
        config = {{std::string(rule.path.substr(start, end - start)), config}};
        end = dot;
      }
      if (rule.path.starts_with("sparse_attention") || rule.path.starts_with("zero_optimization.zenflow")) continue;
      const bool harmful = rule.status == KeyStatus::kRefused && Json(value) != rule.default_value();
      const std::string outcome = refusal(config.dump());
      EXPECT_EQ(outcome != "no error", harmful) << config.dump() << ": " << outcome;
      if (!harmful) continue;
      EXPECT_THAT(outcome, HasSubstr(std::string(rule.reason)));
    }
  }
}

TEST(DsSchema, RatesOfSchedulesAreNotNegative) {
  for (const char* rate : {"lr_range_test_step_rate", "decay_lr_rate", "decay_mom_rate"}) {
    const std::string config = fmt::format(R"({{"scheduler": {{"params": {{"{}": -0.1}}}}}})", rate);
    EXPECT_THAT(refusal(config), HasSubstr(fmt::format("scheduler.params.{}", rate)));
  }
}

TEST(DsConfigSource, TakesAFileInlineJsonOrBase64) {
  const auto folder = std::filesystem::temp_directory_path() / "strake_ds_config_test";
  std::filesystem::create_directories(folder);
  const std::string path = folder / "ds_config.json";
  write_file_atomically(path, R"({"train_batch_size": 8})");
  EXPECT_EQ(parse_ds_config(path).values.at("train_batch_size"), 8);
  EXPECT_EQ(parse_ds_config(path).source, path);
  EXPECT_EQ(parse_ds_config(R"( {"train_batch_size": 9})").values.at("train_batch_size"), 9);
  EXPECT_EQ(parse_ds_config("eyJ0cmFpbl9iYXRjaF9zaXplIjogMTB9").values.at("train_batch_size"), 10);
  // base64.urlsafe_b64encode('{"tensorboard": {"job_name": "\u00ff\u00fe\u00ff?>"}}'.encode())
  EXPECT_EQ(
      parse_ds_config("eyJ0ZW5zb3Jib2FyZCI6IHsiam9iX25hbWUiOiAiw7_DvsO_Pz4ifX0=").values.at("tensorboard.job_name"),
      "\u00ff\u00fe\u00ff?>");
  EXPECT_THAT(refusal("no_such_file.json"),
              HasSubstr("'no_such_file.json' is neither a file that exists nor a JSON object nor base64 of one"));
  EXPECT_THAT(refusal(""), HasSubstr("neither a file"));
  EXPECT_THAT(refusal("eyJh"), HasSubstr("--deepspeed (base64): line 1, column 2: the string has no end"));
  write_file_atomically(path, "[1]");
  EXPECT_THAT(refusal(path), HasSubstr("found array, expected an object"));
  write_file_atomically(path, "\xff\xfe{");
  EXPECT_THAT(refusal(path), HasSubstr("ds_config.json: found UTF-16, expected UTF-8"));
  std::filesystem::remove_all(folder);
}

TEST(DsConfigSource, AllowsHjson) {
  const CheckedValues values = parse_ds_config(R"({  # batch
    "train_batch_size": 8,  // of all ranks
    /* a path,
       not a comment: */ "aio": {}, zero_optimization: {stage: 2}
    "tensorboard": {"output_path": "file://a#b/*c*/\" # d"}
  })");
  EXPECT_EQ(values.values.at("train_batch_size"), 8);
  EXPECT_EQ(values.values.at("tensorboard.output_path"), "file://a#b/*c*/\" # d");
  EXPECT_THAT(refusal("{ /* never closed }"),
              HasSubstr("--deepspeed (inline): line 1, column 3: the comment has no end"));
}

TEST(DsConfig, TakesKeysThatBeginWithAnUnderscoreAsComments) {
  const CheckedValues values = parse_ds_config(R"({
    "_comment": "for two ranks", "_optimizer": {"type": "NoSuch"}, "train_batch_size": 8,
    "zero_optimization": {"stage": 2, "_comment_stage": [1, 2, 3]},
    "amp": {"_enabled": true, "_before": {"enabled": true}}
  })");
  EXPECT_EQ(values.values.at("train_batch_size"), 8);
  EXPECT_EQ(values.values.at("zero_optimization.stage"), 2);
  EXPECT_FALSE(values.has("optimizer.type"));
  EXPECT_THAT(values.notices, ElementsAre("taken as comments: _comment, _optimizer, zero_optimization._comment_stage, "
                                          "amp._before, amp._enabled"));
  std::string many;
  for (int i = 0; i < 30; ++i) many += fmt::format("\"_{}\": {},", i, i);
  EXPECT_THAT(parse_ds_config("{" + many + "}").notices, ElementsAre(HasSubstr(" and 10 more")));
}

TEST(DsConfig, RefusesDuplicateKeysAndKeysWithTwoNames) {
  expect_refused({
      {R"({"fp16": {"enabled": true, "enabled": false}})", "key 'enabled' occurs twice in one object"},
      {R"({"bf16": {"enabled": true}, "bfloat16": {"enabled": true}})", "the same key as 'bf16'"},
      {R"({"zero_optimization": {"stage3_max_live_parameters": 1, "max_live_parameters": 1}})",
       "stage3_max_live_parameters': the same key as 'zero_optimization.max_live_parameters'"},
      {R"({"zero_optimization": {"cpu_offload": true, "offload_optimizer": {"device": "cpu"}}})",
       "key 'zero_optimization.cpu_offload': deprecated name of 'zero_optimization.offload_optimizer'"},
  });
}

TEST(DsConfig, NamesTheKeyThatAnUnknownOneMayHaveMeant) {
  expect_refused({
      {R"({"train_batchsize": 8})", "key 'train_batchsize': unknown; did you mean 'train_batch_size'?"},
      {R"({"micro_batch_size_per_gpu": 8})", "unknown; the key is 'train_micro_batch_size_per_gpu'"},
      {R"({"zero_optimization": {"overlap_com": true}})",
       "key 'zero_optimization.overlap_com': unknown; did you mean 'overlap_comm'?"},
      {R"({"zero_optimization": {"offload_optimizer": {"devise": "cpu"}}})",
       "key 'zero_optimization.offload_optimizer.devise': unknown; did you mean 'device'?"},
      {R"({"stage3_max_live_parameters": 1})",
       "unknown here; it belongs at 'zero_optimization.stage3_max_live_parameters'"},
      {R"({"device": "cpu"})",
       "it belongs at 'zero_optimization.offload_param.device' or "
       "'zero_optimization.offload_optimizer.device'"},
      {R"({"zero_optimization": {"gradient_clipping": 1}})", "unknown here; it belongs at 'gradient_clipping'"},
      {R"({"bfloat16": {"check_overflow": true}})", "key 'bfloat16.check_overflow': unknown; the key is 'bf16.check"},
      {R"({"optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1}}})", "use 'gradient_clipping'"},
      {R"({"zero_optimization.stage": 3})", "levels are nested objects, not dots"},
      {R"({"comms_config": {}})",
       "'comms_config': unknown; DeepSpeed does not read it either; its key is 'comms_logger'"},
      {R"({"compile": {"disable": false, "backend": "inductor"}})", "'compile.backend': unknown; it is for torch.comp"},
      {R"({"qqqqqqqqqqqq": 1})", "--deepspeed (inline): key 'qqqqqqqqqqqq': unknown"},
  });
}

TEST(DsConfig, NamesWrongTypesWithWhatWasExpected) {
  expect_refused({
      {R"({"train_batch_size": "8"})",
       "key 'train_batch_size': found the text \"8\", expected an integer; write 8 without quotes"},
      {R"({"train_batch_size": 2.5})", "2.5 is not a whole number"},
      {R"({"train_batch_size": 1e300})", "is not a whole number of 64 bits"},
      {R"({"train_batch_size": 18446744073709551615})", "is not a whole number of 64 bits"},
      {R"({"train_batch_size": 0})", "0 is not in [1, 1000000000]"},
      {R"({"train_batch_size": true})", "found true, expected an integer"},
      {R"({"fp16": {"enabled": "true"}})",
       "found the text \"true\", expected true or false; write true without quotes"},
      {R"({"fp16": {"enabled": 1}})", "found 1, expected true or false; write true"},
      {R"({"fp16": true})", "key 'fp16': found true, expected an object"},
      {R"({"fp16": {"loss_scale": -1}})", "-1 is not in [0, 1e+38]"},
      {R"({"zero_optimization": {"stage": 4}})", "4 is not in [0, 3]"},
      {R"({"zero_optimization": {"stage": null}})", "found null, expected an integer; leave the key out"},
      {R"({"zero_optimization": {"reduce_bucket_size": [5e7, 5e8]}})",
       "found a list of 2, expected an integer; a list of"},
      {R"({"zero_optimization": {"offload_param": {"device": "gpu"}}})", "\"gpu\" is none of none, cpu, nvme"},
      {R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.9]}}})", "found a list of 1, expected a list of two"},
      {R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.9, 1.5]}}})", "1.5 is not in [0, 1]"},
      {R"({"dump_state": "auto"})", "\"auto\" is not resolved for this key"},
      {R"({"wall_clock_breakdown": {}})", "found an object, expected true or false"},
      {R"({"scheduler": {"type": "WarmupDecay"}})", "did you mean 'WarmupDecayLR'?"},
  });
}

TEST(DsConfig, TakesNumbersInFloatForm) {
  const CheckedValues values = parse_ds_config(
      R"({"zero_optimization": {"reduce_bucket_size": 5e8, "stage3_max_live_parameters": 1e9,
                                "model_persistence_threshold": 9223372036854775807}, "gradient_clipping": 1})");
  EXPECT_EQ(values.values.at("zero_optimization.reduce_bucket_size").get<int64_t>(), 500000000);
  EXPECT_TRUE(values.values.at("zero_optimization.reduce_bucket_size").is_number_integer());
  EXPECT_EQ(values.values.at("zero_optimization.stage3_model_persistence_threshold"), 9223372036854775807);
}

TEST(DsConfig, RefusesWhatItCannotDoWithTheReason) {
  expect_refused({
      {R"({"zero_optimization": {"zero_quantized_weights": true}})", "quantized communication (ZeRO++) is not there"},
      {R"({"zero_optimization": {"zenflow": {}}})", "ZenFlow"},
      {R"({"sparse_attention": {"mode": "fixed"}})", "block-sparse attention is not there"},
      {R"({"compression_training": {"weight_quantization": {"shared_parameters": {"enabled": true}}}})",
       "quantization"},
      {R"({"amp": {"enabled": true, "opt_level": "O1"}})", "key 'amp': Apex is not there"},
      {R"({"elasticity": {"enabled": true}})", "key 'elasticity.enabled'"},
      {R"({"curriculum_learning": {"enabled": true, "curriculum_type": "seqlen"}})", "curricula are not there"},
      {R"({"tensor_parallel": {"autotp_size": 2}})", "tensor-parallel"},
      {R"({"pipeline": {"stages": 2}})", "pipeline stages are not there yet"},
      {R"({"optimizer": {"type": "OneBitAdam"}})", "OneBitAdam: its compressed communication is not there"},
      {R"({"optimizer": {"type": "muon"}})", "Muon: it is not there; AdamW, Adagrad, Lamb, Lion and SGD are"},
      {R"({"optimizer": {"type": "Lamb", "params": {"eps_inside_sqrt": true}}})", "LAMB adds eps to the root"},
      {R"({"optimizer": {"type": "AdamX"}})", "no optimizer is called 'AdamX'; did you mean 'AdamW'?"},
      {R"({"gradient_allreduce_op": "sum"})", "multiply the learning rate"},
      {R"({"checkpoint": {"writer": {"type": "mock"}}})", "would write nothing"},
      {R"({"wandb": {"enabled": true, "project": "p"}})",
       "key 'wandb.enabled': nothing is sent to services; tensorboard"},
      {R"({"comet": {"enabled": true}})", "key 'comet.enabled': nothing is sent to services"},
  });
  EXPECT_EQ(refusal(R"({"amp": {"enabled": "auto", "opt_level": "auto"}, "tensor_parallel": {"autotp_size": 1},
                       "pipeline": {"stages": "auto"}, "checkpoint": {"writer": {"type": "PYTHON"}},
                       "compression_training": {"layer_reduction": {"enabled": false}},
                       "zero_optimization": {"zenflow": null, "stage": 1}})"),
            "no error");
}

TEST(DsConfig, ASectionThatIsNotLookedIntoCannotBeOffByMistake) {
  expect_refused({
      {R"({"curriculum_learning": {"enabled": "true"}})", "'curriculum_learning': \"enabled\" in it: found the text"},
      {R"({"quantize_training": {"enabled": 1}})", "found 1, expected true or false; write true"},
      {R"({"amp": {"enabledd": true}})", "\"enabledd\" in it: unknown; did you mean 'enabled'?"},
      {R"({"compression_training": {"sparse_pruning": {"shared_parameters": {"enable": true}}}})", "\"enable\" in it"},
  });
  EXPECT_EQ(refusal(R"({"amp": {"enabled": false, "opt_level": "O1"}})"), "no error");
}

TEST(DsConfig, TakesAllNamesOfAFloatType) {
  for (const char* name : {"bf16", "bfloat16", "torch.bfloat16"}) {
    const Json config = {{"data_types", {{"grad_accum_dtype", name}}}};
    EXPECT_EQ(parse_ds_config(config.dump()).values.at("data_types.grad_accum_dtype"), "bf16") << name;
  }
  EXPECT_THAT(refusal(R"({"communication_data_type": "int8"})"), HasSubstr("none of fp32, fp16, bf16"));
}

TEST(DsConfig, ListsAllProblemsAtOnce) {
  const std::string text = refusal(R"({"train_batch_size": "8", "fp16": {"enable": true}})");
  EXPECT_THAT(text, HasSubstr("2 problems:\n- key "));
  EXPECT_THAT(text, HasSubstr("'train_batch_size': found the text"));
  EXPECT_THAT(text, HasSubstr("'fp16.enable': unknown; did you mean 'enabled'?"));
  std::string many = "{";
  for (int i = 0; i < 5000; ++i) many += fmt::format("\"key{}\": 1, ", i);
  EXPECT_THAT(refusal(many + "\"fp16\": {}}"), HasSubstr("1000 problems, the first 40:"));
}

TEST(DsConfig, TakesAutoInModelsThatDropItAndKeepsItWhereItIsResolved) {
  const CheckedValues values = parse_ds_config(
      R"({"train_batch_size": "auto", "zero_optimization": {"sub_group_size": "auto", "stage": "auto",
          "reduce_bucket_size": "auto", "stage3_param_persistence_threshold": "auto", "offload_optimizer": {"device": "auto", "pin_memory": "auto"}}})");
  EXPECT_TRUE(values.is_auto("train_batch_size"));
  EXPECT_TRUE(values.is_auto("zero_optimization.stage3_param_persistence_threshold"));
  EXPECT_FALSE(values.has("zero_optimization.reduce_bucket_size"));
  EXPECT_FALSE(values.has("zero_optimization.sub_group_size"));
  EXPECT_FALSE(values.has("zero_optimization.offload_optimizer.device"));
}

TEST(DsConfig, TranslatesDeprecatedKeysAndSaysSo) {
  const CheckedValues legacy = parse_ds_config(R"({"zero_optimization": true, "allgather_size": 2e8})");
  EXPECT_EQ(legacy.values.at("zero_optimization.stage"), 1);
  EXPECT_EQ(legacy.values.at("zero_optimization.allgather_bucket_size"), 200000000);
  EXPECT_THAT(legacy.notices, ElementsAre(HasSubstr("zero_optimization: true is deprecated")));
  EXPECT_EQ(parse_ds_config(R"({"zero_optimization": false})").values.at("zero_optimization.stage"), 0);

  const CheckedValues offload = parse_ds_config(
      R"({"bfloat16": {"enabled": true}, "zero_optimization": {"cpu_offload": true, "cpu_offload_param": false,
          "stage3_gather_fp16_weights_on_model_save": true}})");
  EXPECT_EQ(offload.values.at("zero_optimization.offload_optimizer.device"), "cpu");
  EXPECT_FALSE(offload.has("zero_optimization.offload_param.device"));
  EXPECT_EQ(offload.values.at("bf16.enabled"), true);
  EXPECT_EQ(offload.values.at("zero_optimization.stage3_gather_16bit_weights_on_model_save"), true);
  EXPECT_EQ(offload.notices.size(), 4U);
}

TEST(DsConfig, SaysOnceWhatIsAcceptedWithoutEffect) {
  const CheckedValues values = parse_ds_config(
      R"({"tensorboard": {"enabled": true}, "nebula": {"enabled": true, "persistent_time_interval": 10},
          "flops_profiler": {"enabled": true, "module_depth": -1}, "wandb": {"enabled": false},
          "aio": {"thread_count": 1}, "zero_optimization": {"contiguous_gradients": false}})");
  EXPECT_THAT(values.notices, ElementsAre(HasSubstr("aio.thread_count: ")));
  EXPECT_THAT(parse_ds_config("{}").notices, IsEmpty());
}

// sdk/python/jobs/grpo/config/zero3.json of Azure/azureml-examples: a flattened Accelerate configuration, whose stray
// keys DeepSpeed ignores without a word.
TEST(DsConfig, TellsWhereEveryStrayKeyOfAFlattenedFileBelongs) {
  const std::string text = refusal(R"({
    "deepspeed_multinode_launcher": "standard", "offload_optimizer_device": "cpu", "offload_param_device": "cpu",
    "zero3_init_flag": true, "zero3_save_16bit_model": true, "zero_stage": 3, "overlap_comm": true,
    "sub_group_size": 1000000, "stage3_max_live_parameters": 1000, "stage3_max_reuse_distance": 1000000,
    "stage3_gather_16bit_weights_on_model_save": true, "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps" : "auto", "reduce_bucket_size": 5000000,
    "stage3_prefetch_bucket_size": 5000000, "stage3_param_persistence_threshold": 5000000,
    "memory_efficient_linear": true, "contiguous_gradients": true,
    "zero_optimization": {"stage": 3, "cpu_offload": true, "contiguous_gradients": true, "sub_group_size": 1000000,
      "stage3_prefetch_bucket_size": 5000000, "stage3_param_persistence_threshold": 5000000,
      "stage3_max_live_parameters": 1000, "stage3_max_reuse_distance": 1000000,
      "stage3_gather_16bit_weights_on_model_save": true},
    "optimizer": {"type": "Adam", "params": {"lr": "auto", "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}}})");
  EXPECT_THAT(text, HasSubstr("16 problems:"));
  for (const char* key :
       {"overlap_comm", "sub_group_size", "stage3_max_live_parameters", "stage3_max_reuse_distance",
        "stage3_gather_16bit_weights_on_model_save", "reduce_bucket_size", "stage3_prefetch_bucket_size",
        "stage3_param_persistence_threshold", "memory_efficient_linear", "contiguous_gradients"})
    EXPECT_THAT(text, HasSubstr(fmt::format("key '{0}': unknown here; it belongs at 'zero_optimization.{0}'", key)));
  EXPECT_THAT(text, HasSubstr("key 'zero_stage': unknown; it is Accelerate's name of 'zero_optimization.stage'"));
  EXPECT_THAT(text, HasSubstr("'zero_optimization.offload_param.device'"));
  EXPECT_THAT(text, Not(HasSubstr("key 'train_batch_size'")));
}

}  // namespace
}  // namespace strake::integrations::ds_config_test
