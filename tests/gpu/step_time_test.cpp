// How long steps of full-sized models take: printed, never asserted.
#include <gtest/gtest.h>

#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <vector>

#include "strake/comm/comm.h"
#include "strake/core/error.h"
#include "strake/models/encoder/sequence_classifier.h"
#include "strake/models/gpt2/gpt2.h"
#include "strake/models/weights.h"
#include "strake/tensors/cuda_libtorch.h"
#include "strake/training/memory_plan.h"
#include "strake/training/stepper.h"
#include "strake/training/training_flops.h"
#include "tests/gpu/gpu.h"

namespace strake::training::step_time_test {
namespace {

constexpr int kWarmUp = 5;
constexpr int kSteps = 11;
constexpr int64_t kTokens = 16384;  // of a step
constexpr double kTera = 1e12;
constexpr double kGibibyte = 1 << 30;

// Shapes of bert-base and of gpt2.
std::unique_ptr<models::Model> bert_base() {
  const Json document{{"model_type", "bert"},           {"vocab_size", 30522},       {"hidden_size", 768},
                      {"num_hidden_layers", 12},        {"num_attention_heads", 12}, {"intermediate_size", 3072},
                      {"max_position_embeddings", 512}, {"type_vocab_size", 2}};
  models::EncoderConfig config = models::parse_encoder_config(document, "config.json");
  require(config.hidden_dropout == 0.1, ErrorKind::kInternal, "another dropout than the peer's");
  config.set_labels({"no", "yes"}, std::nullopt);
  return std::make_unique<models::SequenceClassifier>(config);
}

std::unique_ptr<models::Model> gpt2() {
  const Json document{{"model_type", "gpt2"}, {"vocab_size", 50257}, {"n_embd", 768},
                      {"n_layer", 12},        {"n_head", 12},        {"n_positions", 1024}};
  return std::make_unique<models::Gpt2>(models::parse_gpt2_config(document, "config.json"));
}

data::TokenDataset dataset(int64_t length) {
  constexpr int32_t kIds = 30000;
  data::TokenDatasetBuilder builder("test");
  for (int32_t i = 0; i < kTokens / length; ++i) {
    std::vector<int32_t> ids;
    for (int32_t t = 0; t < length; ++t) ids.push_back((7919 * i + 104729 * t) % kIds);
    builder.append({.ids = ids, .second_begin = static_cast<int32_t>(length), .label = i % 2, .row = i});
  }
  return builder.build();
}

struct Case {
  const char* name;
  std::unique_ptr<models::Model> (*model)();
  int64_t length;  // of its sequences
  Precision precision;
};
void PrintTo(const Case& c, std::ostream* stream) { *stream << c.name; }

// What was planned, what libtorch's allocator was asked for, what it made of that and took from the GPU, and what the
// GPU has less: kernels' workspaces, too, and what libraries loaded.
void print_memory(const MemoryPlan& plan, int64_t free_before) {
  const auto stats = c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(0);
  const auto peak = [](const c10::CachingAllocator::StatArray& stat) {
    return stat[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
  };
  fmt::print("  MiB: planned {}, requested {}, allocated {}, reserved {}, taken {}\n", plan.rank_bytes() >> 20,
             peak(stats.requested_bytes) >> 20, peak(stats.allocated_bytes) >> 20, peak(stats.reserved_bytes) >> 20,
             (free_before - tensors::gpu_memory(0).free) >> 20);
}

class GpuStepTime : public testing::TestWithParam<Case> {};

TEST_P(GpuStepTime, IsPrinted) {
  if (!has_gpu()) GTEST_SKIP() << "skipped: no GPU";
  open_gpu();
  c10::getDeviceAllocator(at::kCUDA)->emptyCache();
  const int64_t free_before = tensors::gpu_memory(0).free;
  const auto model = GetParam().model();
  const data::TokenDataset data = dataset(GetParam().length);
  const TrainingOptions options{.weight_decay = 0.01, .bf16 = GetParam().precision == Precision::kBf16, .gpu = 0};
  comm::SelfComm comm;
  ShardedParameters parameters(*model, comm, options);
  for (size_t i = 0; i < model->blocks().size(); ++i) {
    at::Tensor whole = at::zeros({model->blocks()[i]->layout().numel()});
    models::initialize_block(*model->blocks()[i], 0.02, 1, whole);
    parameters.assign(i, whole);
  }
  c10::getDeviceAllocator(at::kCUDA)->resetPeakStats(0);
  Stepper stepper(*model, parameters, comm, options);
  data::GlobalStep global;
  data::MicroBatch& all = global.micro_batches.emplace_back();
  for (int64_t i = 0; i < data.size(); ++i) all.push_back(i);
  std::vector<double> seconds;
  for (int step = 1; step <= kWarmUp + kSteps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    const StepReport report = stepper.run(data, global, {.number = step, .learning_rate = 1e-5});
    ASSERT_TRUE(std::isfinite(report.loss));  // it comes from the GPU when the step is over
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    if (step > kWarmUp) seconds.push_back(time.count());
  }
  std::ranges::nth_element(seconds, seconds.begin() + kSteps / 2);
  const double median = seconds[kSteps / 2];
  const int64_t length = GetParam().length;
  const double flops = TrainingFlops(*model)(
      {.tokens = kTokens, .sequences = kTokens / length, .squared_lengths = static_cast<double>(kTokens * length)});
  fmt::print("{}: {:.1f} ms a step, {:.0f} tokens/s, {:.1f} TFLOP/s in products, peak {:.1f} GiB\n", GetParam().name,
             1e3 * median, kTokens / median, flops / median / kTera,
             static_cast<double>(tensors::peak_gpu_bytes()) / kGibibyte);
  print_memory(plan_memory({.model = *model,
                            .options = options,
                            .batch = {.tokens = kTokens, .sequences = data.size(), .longest = GetParam().length},
                            .device = models::PlannedDevice::kGpu}),
               free_before);
}

INSTANTIATE_TEST_SUITE_P(Shapes, GpuStepTime,
                         testing::Values(Case{"bert_base_128_fp32", bert_base, 128, Precision::kFp32},
                                         Case{"bert_base_128_bf16", bert_base, 128, Precision::kBf16},
                                         Case{"bert_base_512_bf16", bert_base, 512, Precision::kBf16},
                                         Case{"gpt2_1024_fp32", gpt2, 1024, Precision::kFp32},
                                         Case{"gpt2_1024_bf16", gpt2, 1024, Precision::kBf16}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace strake::training::step_time_test
