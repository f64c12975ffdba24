#pragma once

#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "strake/comm/thread_comm.h"
#include "strake/core/json.h"
#include "strake/models/encoder/masked_language_model.h"
#include "strake/models/encoder/question_answerer.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/encoder/token_classifier.h"
#include "strake/models/gpt2/gpt2.h"
#include "strake/models/weights.h"
#include "strake/training/evaluator.h"
#include "strake/training/freezing.h"
#include "strake/training/memory_plan.h"
#include "strake/training/run_checkpoint.h"
#include "strake/training/stepper.h"
#include "strake/training/test_dataset.h"

// For tests: small runs whose memory is planned and measured.
namespace strake::training {

inline constexpr int64_t kLayers = 4;
inline constexpr int64_t kWords = 750;

enum class OnDisk { kNothing, kStates, kAll };
enum class OnHost { kNothing, kStates, kParameters, kAll };  // of ranks on GPUs

struct Case {
  std::string family = "bert";
  ShardingStage stage = kZero0;
  int ranks = 1;
  bool recompute = false;
  Precision precision = Precision::kFp32;
  int64_t accumulation = 1;
  int64_t sequences = 12;  // of a micro-batch
  double dropout = 0.1;
  std::string optim = "adamw_torch";
  Precision reduction = Precision::kFp32;
  Precision sum = Precision::kFp32;  // of gradients
  Precision master = Precision::kFp32;
  FreezeRules frozen;
  OnDisk disk = OnDisk::kNothing;
  int64_t group = 1;  // ranks of a group, of hybrid sharding
  int64_t vocabulary = kWords;
  int64_t evaluated = 0;  // sequences of an evaluation's batch
  bool async_save = false;
  int64_t size = 1;  // multiplies what follows from it: parameters and activations grow with its square
  bool on_gpu = false;
  OnHost host = OnHost::kNothing;
  bool inputs_on_host = false;

  int64_t length() const { return 64 * size; }  // tokens of a sequence
  int64_t hidden() const { return 64 * size; }
  int64_t heads() const { return 2 * size; }
  int64_t words() const { return vocabulary * size; }
  int64_t window_elements() const { return 8192 * size * size; }

  Case without_evaluation() const {
    Case other = *this;
    other.evaluated = 0;
    return other;
  }
  std::string text() const {
    return fmt::format("{}{} {}{}{} {} rank{} {}{}{}{}{}{}{}{}, gradients reduced in {}, added up in {}, masters of {}",
                       family, vocabulary > kWords ? " of many words" : "", stage.name,
                       disk == OnDisk::kAll      ? " all on disk"
                       : disk == OnDisk::kStates ? " states on disk"
                                                 : "",
                       host == OnHost::kAll          ? " all on the host"
                       : host == OnHost::kStates     ? " states on the host"
                       : host == OnHost::kParameters ? " parameters on the host"
                                                     : "",
                       ranks, ranks == 1 ? " " : "s", to_string(precision),
                       recompute ? (inputs_on_host ? " recompute from the host" : " recompute") : "",
                       accumulation > 1 ? fmt::format(" x{}", accumulation) : "", dropout == 0 ? " no-dropout" : "",
                       optim == "adamw_torch" ? "" : " " + optim,
                       (evaluated > 0 ? fmt::format(" evaluates {}", evaluated) : "") + (async_save ? " async" : ""),
                       frozen.freeze.empty() ? "" : " freeze " + frozen.freeze,
                       frozen.train_only.empty() ? "" : " train " + frozen.train_only, to_string(reduction),
                       to_string(sum), to_string(master));
  }
};

inline std::unique_ptr<models::Model> make_whole_model(const Case& test) {
  if (test.family == "gpt2") {
    return std::make_unique<models::Gpt2>(models::parse_gpt2_config({{"model_type", "gpt2"},
                                                                     {"vocab_size", test.words()},
                                                                     {"n_embd", test.hidden()},
                                                                     {"n_layer", kLayers},
                                                                     {"n_head", test.heads()},
                                                                     {"n_positions", test.length()},
                                                                     {"embd_pdrop", test.dropout},
                                                                     {"attn_pdrop", test.dropout},
                                                                     {"resid_pdrop", test.dropout}},
                                                                    "test"));
  }
  const bool is_masked = test.family == "masked";
  const bool is_bert = is_masked || test.family == "tokens" || test.family == "answers";
  models::EncoderConfig config{.model_type = is_bert ? "bert" : test.family,
                               .vocab_size = test.words(),
                               .hidden_size = test.hidden(),
                               .num_hidden_layers = kLayers,
                               .num_attention_heads = test.heads(),
                               .intermediate_size = 4 * test.hidden(),
                               .max_position_embeddings = test.length() + 2,
                               .type_vocab_size = test.family == "distilbert" ? 0 : 2,
                               .pad_token_id = 1,
                               .hidden_dropout = test.dropout,
                               .attention_output_dropout = test.dropout,
                               .attention_dropout = test.dropout,
                               .classifier_dropout = test.dropout};
  if (is_masked)
    return std::make_unique<models::MaskedLanguageModel>(config, models::TokenMasking{.num_tokens = kWords});
  if (test.family == "answers") return std::make_unique<models::QuestionAnswerer>(config);
  config.set_labels({"no", "yes"}, std::nullopt);
  if (test.family == "tokens") return std::make_unique<models::TokenClassifier>(config);
  return std::make_unique<models::SequenceClassifier>(config);
}

inline std::unique_ptr<models::Model> make_model(const Case& test) {
  auto model = make_whole_model(test);
  freeze_parameters(*model, test.frozen);
  return model;
}

// Of all blocks, computed once for the cases that have them in common. What they take is not measured.
inline const std::vector<at::Tensor>& initial_weights(const Case& test) {
  static std::map<std::tuple<std::string, int64_t, int64_t>, std::vector<at::Tensor>> known;
  std::vector<at::Tensor>& weights = known[{test.family, test.size, test.vocabulary}];
  if (!weights.empty()) return weights;
  const auto model = make_whole_model(test);
  for (const auto& block : model->blocks()) {
    at::Tensor& whole = weights.emplace_back(at::zeros({block->layout().numel()}));
    models::initialize_block(*block, 0.02, 42, whole);
  }
  return weights;
}

inline TrainingOptions options_of(const Case& test) {
  return {
      .gradient_accumulation_steps = test.accumulation,
      .optim = test.optim,
      .bf16 = test.precision == Precision::kBf16,
      .fp16 = test.precision == Precision::kFp16,
      .gradient_checkpointing = test.recompute,
      .checkpoints_on_host = test.inputs_on_host,
      .sharding = {.stage = test.stage,
                   .group_size = test.group,
                   .share_parameters = false,
                   .offload = {.optimizer = test.disk != OnDisk::kNothing,
                               .parameters = test.disk == OnDisk::kAll,
                               .folder = std::filesystem::temp_directory_path(),
                               .window_elements = test.window_elements(),
                               .optimizer_to_host = test.host == OnHost::kStates || test.host == OnHost::kAll,
                               .parameters_to_host = test.host == OnHost::kParameters || test.host == OnHost::kAll}},
      .reduction = test.reduction,
      .accumulation = test.sum,
      .master = test.master,
      .gpu = test.on_gpu ? std::optional(0) : std::nullopt,
      .async_save = test.async_save};
}

inline data::TokenDataset dataset_of(const Case& test, int64_t sequences) {
  const TestLabels labels = test.family == "tokens"    ? TestLabels::kOfTokens
                            : test.family == "answers" ? TestLabels::kSpans
                                                       : TestLabels::kOfSequences;
  return make_dataset(sequences, test.length(), kWords * test.size, labels);
}

inline void evaluate(const Case& test, const models::Model& model, ShardedParameters& parameters, comm::Comm& comm) {
  const data::TokenDataset dataset = dataset_of(test, test.evaluated * test.ranks);
  if (test.family == "gpt2" || test.family == "masked") {
    evaluate_language_model({model, parameters, comm, dataset, {.sequences = test.evaluated}});
  } else if (test.family == "tokens") {
    evaluate_token_classifier(dynamic_cast<const models::TokenClassifier&>(model), parameters, comm, dataset,
                              test.evaluated);
  } else if (test.family == "answers") {
    evaluate_question_answerer(dynamic_cast<const models::QuestionAnswerer&>(model), parameters, comm, dataset,
                               test.evaluated);
  } else {
    evaluate(dynamic_cast<const models::SequenceClassifier&>(model), parameters, comm, dataset, test.evaluated);
  }
}

// Of rank 0, in initial weights, then two steps, an evaluation and then what is written of them, or before the last two
// what is copied: what `peak` gives at their end of what was allocated since `reset`, each called by the rank's thread.
inline int64_t measured_peak(const Case& test, void (*reset)(), int64_t (*peak)()) {
  const int64_t per_step = test.ranks * test.accumulation;
  const data::TokenDataset dataset = dataset_of(test, test.sequences * per_step);
  data::GlobalStep step;
  for (int64_t m = 0; m < per_step; ++m) {
    data::MicroBatch batch(static_cast<size_t>(test.sequences));
    std::iota(batch.begin(), batch.end(), m * test.sequences);
    step.micro_batches.push_back(batch);
  }
  const TrainingOptions options = options_of(test);
  const std::vector<at::Tensor>& weights = initial_weights(test);
  int64_t measured = 0;
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("strake_memory_plan_test_{}", ::getpid());
  std::filesystem::create_directories(folder);
  const auto run = [&](comm::Comm& comm) {
    reset();
    const auto model = make_model(test);
    ShardedParameters parameters(*model, comm, options);
    for (size_t i = 0; i < parameters.num_blocks(); ++i) {
      parameters.assign(i, weights[i].clone());
    }
    Stepper stepper(*model, parameters, comm, options);
    TensorFiles copied(folder, TensorFiles::Write::kLater);
    const auto take_step = [&](int64_t number) {
      stepper.run(dataset, step, {.number = number, .learning_rate = 1e-3});
    };
    take_step(1);
    if (test.async_save) {
      stepper.release_buffers();
      write_run(*model, parameters, {}, {}, copied);
      take_step(2);
    }
    take_step(3);
    if (test.evaluated > 0) evaluate(test, *model, parameters, comm);
    if (!test.async_save) {
      stepper.release_buffers();
      TensorFiles files(folder, TensorFiles::Write::kNow);
      write_run(*model, parameters, {}, {}, files);
    }
    if (comm.rank() == 0) measured = peak();
  };
  if (test.ranks == 1) {
    comm::SelfComm self;
    run(self);
  } else {
    comm::run_ranks(test.ranks, 1, run);
  }
  std::filesystem::remove_all(folder);
  return measured;
}

inline MemoryPlan plan_of(const Case& test) {
  const auto model = make_model(test);
  const TrainingOptions options = options_of(test);
  const int64_t targets = model->num_targets(test.length());
  return plan_memory({.model = *model,
                      .options = options,
                      .batch = {.tokens = test.sequences * test.length(),
                                .sequences = test.sequences,
                                .longest = test.length(),
                                .targets = test.sequences * targets},
                      .evaluation = {.tokens = test.evaluated * test.length(),
                                     .sequences = test.evaluated,
                                     .targets = test.evaluated * targets},
                      .num_ranks = test.ranks,
                      .device = test.on_gpu ? models::PlannedDevice::kGpu : models::PlannedDevice::kProcessor});
}

}  // namespace strake::training
