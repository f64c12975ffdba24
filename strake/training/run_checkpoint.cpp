#include "strake/training/run_checkpoint.h"

#include <ATen/ops/zeros.h>

#include "strake/core/error.h"
#include "strake/core/file.h"
#include "strake/core/json.h"
#include "strake/models/weights.h"
#include "strake/tensors/safetensors.h"

namespace strake::training {
namespace {
namespace fs = std::filesystem;

using tensors::SafetensorsWriter;

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "strake_state.json";

const std::map<std::string, std::string> kMetadata{{"format", "pt"}};

// In the order in which named_weights gives the tensors.
std::vector<SafetensorsWriter::Entry> model_entries(const models::Model& model) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const auto& block : model.blocks()) {
    for (auto& [name, shape] : models::checkpoint_tensors(*block)) entries.push_back({name, at::kFloat, shape});
  }
  return entries;
}

void write_weights(const models::Model& model, ShardedParameters& parameters, SafetensorsWriter* writer) {
  for (size_t i = 0; i < parameters.num_blocks(); ++i) {
    const at::Tensor whole = parameters.gather_whole(i, parameters.block(i).master);
    if (writer == nullptr) continue;
    for (const auto& [name, tensor] : models::named_weights(*model.blocks()[i], whole)) writer->write(tensor);
  }
}

void write_moments(ShardedParameters& parameters, SafetensorsWriter* writer) {
  for (size_t i = 0; i < parameters.num_blocks(); ++i) {
    for (const at::Tensor& moment : {parameters.block(i).exp_avg, parameters.block(i).exp_avg_sq}) {
      const at::Tensor whole = parameters.gather_whole(i, moment);
      if (writer != nullptr) writer->write(whole);
    }
  }
}

std::vector<SafetensorsWriter::Entry> moment_entries(const models::Model& model) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const auto& block : model.blocks()) {
    for (const char* moment : {".exp_avg", ".exp_avg_sq"}) {
      entries.push_back({block->name() + moment, at::kFloat, {block->layout().numel()}});
    }
  }
  return entries;
}

Json to_json(const RunState& state) {
  return {{"step", state.step},
          {"epoch", state.cursor.epoch},
          {"position", state.cursor.position},
          {"best_metric", state.best_metric ? Json(*state.best_metric) : Json()},
          {"best_step", state.best_step},
          {"evaluations_without_gain", state.evaluations_without_gain},
          {"loss_since_log", state.loss_since_log},
          {"steps_since_log", state.steps_since_log},
          {"loss_sum", state.loss_sum},
          {"flops", state.flops}};
}

RunState state_from(const Json& json, const std::string& source) {
  RunState state;
  state.step = get_required<int64_t>(json, "step", source);
  state.cursor.epoch = get_required<int64_t>(json, "epoch", source);
  state.cursor.position = get_required<int64_t>(json, "position", source);
  if (json.contains("best_metric") && !json["best_metric"].is_null()) {
    state.best_metric = get_required<double>(json, "best_metric", source);
  }
  state.best_step = get_required<int64_t>(json, "best_step", source);
  state.evaluations_without_gain = get_required<int64_t>(json, "evaluations_without_gain", source);
  state.loss_since_log = get_required<double>(json, "loss_since_log", source);
  state.steps_since_log = get_required<int64_t>(json, "steps_since_log", source);
  state.loss_sum = get_required<double>(json, "loss_sum", source);
  state.flops = get_required<double>(json, "flops", source);
  require(state.step >= 0 && state.cursor.epoch >= 0 && state.cursor.position >= 0, ErrorKind::kConfig,
          "{}: negative position", source);
  return state;
}

void check_fingerprint(const Json& saved, const Json& now, const std::string& source) {
  for (const auto& [key, value] : now.items()) {
    require(saved.contains(key) && saved[key] == value, ErrorKind::kConfig,
            "{}: the run was started with {} = {}, now it is {}: resuming would not continue the same run", source, key,
            saved.contains(key) ? printable(saved[key].dump()) : "(nothing)", printable(value.dump()));
  }
}

}  // namespace

void write_model(const models::Model& model, ShardedParameters& parameters, const fs::path& folder) {
  std::optional<SafetensorsWriter> writer;
  if (parameters.rank() == 0) writer.emplace(folder / kModelFile, model_entries(model), kMetadata);
  write_weights(model, parameters, writer ? &*writer : nullptr);
  if (writer) writer->commit();
}

void write_run(const models::Model& model, ShardedParameters& parameters, const RunState& state,
               const Json& fingerprint, const fs::path& folder) {
  write_model(model, parameters, folder);
  std::optional<SafetensorsWriter> writer;
  if (parameters.rank() == 0) {
    writer.emplace(folder / kOptimizerFile, moment_entries(model), std::map<std::string, std::string>{});
  }
  write_moments(parameters, writer ? &*writer : nullptr);
  if (!writer) return;
  writer->commit();
  const Json document{{"state", to_json(state)}, {"fingerprint", fingerprint}};
  write_file_atomically(folder / kStateFile, document.dump(2) + "\n");
}

RunState read_run(const models::Model& model, ShardedParameters& parameters, const Json& fingerprint,
                  const fs::path& folder) {
  const std::string source = (folder / kStateFile).string();
  const Json document = read_json(folder / kStateFile, kMaxConfigBytes);
  check_fingerprint(get_required<Json>(document, "fingerprint", source), fingerprint, source);
  read_model(model, parameters, folder);
  const tensors::SafetensorsFile moments(folder / kOptimizerFile);
  for (size_t i = 0; i < parameters.num_blocks(); ++i) {
    const models::Block& block = *model.blocks()[i];
    BlockShard& shard = parameters.block(i);
    for (auto& [name, target] : {std::pair{block.name() + ".exp_avg", &shard.exp_avg},
                                 std::pair{block.name() + ".exp_avg_sq", &shard.exp_avg_sq}}) {
      const at::Tensor whole = moments.read(name);
      require(whole.dim() == 1 && whole.numel() == block.layout().numel() && whole.scalar_type() == at::kFloat,
              ErrorKind::kConfig, "{}: '{}' does not fit the model", moments.path().string(), name);
      target->copy_(parameters.own_part(i, whole));
    }
  }
  return state_from(get_required<Json>(document, "state", source), source);
}

void read_model(const models::Model& model, ShardedParameters& parameters, const fs::path& folder) {
  const tensors::CheckpointFiles files(folder);
  for (size_t i = 0; i < parameters.num_blocks(); ++i) {
    const models::Block& block = *model.blocks()[i];
    at::Tensor whole = at::zeros({block.layout().numel()});
    models::LoadReport report;
    models::load_block(block, {.model = model, .files = files}, whole, report);
    require(report.initialized.empty(), ErrorKind::kConfig, "{} lacks tensor '{}'", folder.string(),
            report.initialized.empty() ? "" : report.initialized.front());
    parameters.assign(i, whole);
  }
}

}  // namespace strake::training
