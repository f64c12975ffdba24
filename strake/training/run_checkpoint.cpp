#include "strake/training/run_checkpoint.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>

#include "strake/core/error.h"
#include "strake/core/json.h"
#include "strake/core/parse_integer.h"
#include "strake/tensors/safetensors.h"
#include "strake/training/freezing.h"
#include "strake/training/model_files.h"

namespace strake::training {
namespace {
namespace fs = std::filesystem;

using tensors::SafetensorsWriter;

using checkpoint::kOptimizerPrefix;
using checkpoint::kStateFile;

std::string state_name(const models::Block& block, const optim::Optimizer::State& state) {
  return fmt::format("{}.{}", block.name(), state.name);
}

// Each rank's piece of the optimizer state of a block's trained unit, flat; where it begins in the unit is written as
// metadata.
void write_optimizer_piece(const models::Model& model, ShardedParameters& parameters, TensorFiles& files) {
  const auto states = parameters.optimizer().states();
  std::vector<SafetensorsWriter::Entry> entries;
  std::map<std::string, std::string> begins;
  const Units& units = parameters.units();
  const auto piece_size = [&](size_t u) {
    return units[u].is_frozen() ? 0 : parameters.unit(u).layout.size(parameters.rank());
  };
  for (size_t u = 0; u < units.size(); ++u) {
    if (piece_size(u) == 0) continue;
    const models::Block& block = *model.blocks()[units[u].block];
    begins[block.name()] = std::to_string(parameters.unit(u).layout.begin(parameters.rank()));
    for (const auto& state : states) {
      entries.push_back({state_name(block, state), parameters.state_type(), {piece_size(u)}});
    }
  }
  const std::string name =
      fmt::format("{}{:05}-of-{:05}.safetensors", kOptimizerPrefix, parameters.rank() + 1, parameters.num_ranks());
  files.begin(name, std::move(entries), begins);
  for (size_t u = 0; u < units.size(); ++u) {
    if (piece_size(u) == 0) continue;
    const UnitShard& shard = parameters.unit(u);
    for (size_t k = 0; k < states.size(); ++k) {
      const int64_t first = shard.layout.begin(parameters.rank()) - shard.begin;
      files.write(parameters.state(u, k).narrow(0, first, piece_size(u)));
    }
  }
  files.end();
}

// Where the file's piece of a block begins, or nothing if it has none.
std::optional<int64_t> piece_begin(const tensors::SafetensorsFile& file, const std::string& block) {
  const auto found = file.metadata().find(block);
  if (found == file.metadata().end()) return std::nullopt;
  const auto begin = parse_integer<int64_t>(found->second);
  require(begin && *begin >= 0, ErrorKind::kConfig, "{}: '{}' is no position of block '{}'", file.path().string(),
          printable(found->second), block);
  return begin;
}

// Copies what `piece`, the unit's elements from `piece_begin` on, has of this rank's own part; returns how much.
int64_t copy_overlap(const at::Tensor& piece, int64_t piece_begin, const UnitShard& shard, const at::Tensor& own) {
  const int64_t begin = std::max(piece_begin, shard.begin);
  const int64_t end = std::min(piece_begin + piece.numel(), shard.begin + own.numel());
  if (begin >= end) return 0;
  own.narrow(0, begin - shard.begin, end - begin).copy_(piece.narrow(0, begin - piece_begin, end - begin));
  return end - begin;
}

void read_optimizer(const models::Model& model, ShardedParameters& parameters, const fs::path& folder) {
  std::vector<tensors::SafetensorsFile> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kOptimizerPrefix) && name.ends_with(".safetensors")) files.emplace_back(entry.path());
  }
  for (size_t u = 0; u < parameters.units().size(); ++u) {
    const Unit& unit = parameters.units()[u];
    if (unit.is_frozen()) continue;
    const models::Block& block = *model.blocks()[unit.block];
    const UnitShard& shard = parameters.unit(u);
    for (size_t k = 0; k < parameters.optimizer().states().size(); ++k) {
      const std::string name = state_name(block, parameters.optimizer().states()[k]);
      const at::Tensor own = at::empty({shard.count}, parameters.state_type());
      int64_t found = 0;
      for (const tensors::SafetensorsFile& file : files) {
        const auto begin = piece_begin(file, block.name());
        if (!begin) continue;
        const at::Tensor piece = file.read(name);
        require(piece.dim() == 1 && piece.scalar_type() == own.scalar_type() &&
                    *begin <= unit.layout.numel() - piece.numel(),
                ErrorKind::kConfig, "{}: '{}' does not fit the model", file.path().string(), name);
        found += copy_overlap(piece, *begin, shard, own);
      }
      require(found == own.numel(), ErrorKind::kConfig, "{}: the optimizer files have {} of {} elements of '{}'",
              folder.string(), found, own.numel(), name);
      parameters.set_state(u, k, own);
    }
  }
}

Json to_json(const RunState& state) {
  return {{"step", state.step},
          {"epoch", state.cursor.epoch},
          {"position", state.cursor.position},
          {"best_model", to_json(state.best_model)},
          {"loss_since_log", state.loss_since_log},
          {"steps_since_log", state.steps_since_log},
          {"loss_sum", state.loss_sum},
          {"flops", state.flops},
          {"skipped_steps", state.skipped_steps},
          {"loss_scaler",
           {{"scale", state.loss_scaler.scale},
            {"steps", state.loss_scaler.steps},
            {"last_overflow", state.loss_scaler.last_overflow},
            {"hysteresis", state.loss_scaler.hysteresis}}},
          {"settings", state.settings}};
}

RunState state_from(const Json& json, const std::string& source) {
  RunState state;
  state.step = get_required<int64_t>(json, "step", source);
  state.cursor.epoch = get_required<int64_t>(json, "epoch", source);
  state.cursor.position = get_required<int64_t>(json, "position", source);
  state.best_model = best_model_state(get_required<Json>(json, "best_model", source), source);
  state.loss_since_log = get_required<double>(json, "loss_since_log", source);
  state.steps_since_log = get_required<int64_t>(json, "steps_since_log", source);
  state.loss_sum = get_required<double>(json, "loss_sum", source);
  state.flops = get_required<double>(json, "flops", source);
  state.skipped_steps = get_required<int64_t>(json, "skipped_steps", source);
  const Json scaler = get_required<Json>(json, "loss_scaler", source);
  state.loss_scaler = {.scale = get_required<double>(scaler, "scale", source),
                       .steps = get_required<int64_t>(scaler, "steps", source),
                       .last_overflow = get_required<int64_t>(scaler, "last_overflow", source),
                       .hysteresis = get_required<int64_t>(scaler, "hysteresis", source)};
  state.settings = get_required<Json>(json, "settings", source);
  constexpr int64_t kMostSteps = 1'000'000'000'000'000;
  require(state.step >= 0 && state.step <= kMostSteps && state.cursor.epoch >= 0 && state.cursor.epoch <= state.step &&
              state.cursor.position >= 0,
          ErrorKind::kConfig, "{}: step {} at epoch {}, sequence {}", source, state.step, state.cursor.epoch,
          state.cursor.position);
  require(state.steps_since_log >= 0 && state.steps_since_log <= state.step && state.flops >= 0, ErrorKind::kConfig,
          "{}: steps_since_log {} and flops {} of {} steps", source, state.steps_since_log, state.flops, state.step);
  require(state.skipped_steps >= 0 && state.skipped_steps <= state.step && state.loss_scaler.scale > 0,
          ErrorKind::kConfig, "{}: {} of {} steps skipped, loss scale {}", source, state.skipped_steps, state.step,
          state.loss_scaler.scale);
  return state;
}

void check_fingerprint(const Json& saved, const Json& now, const std::string& source) {
  require(saved.is_object(), ErrorKind::kConfig, "{}: the fingerprint is no object", source);
  std::set<std::string> keys;
  for (const Json* either : {&saved, &now}) {
    for (const auto& item : either->items()) keys.insert(item.key());
  }
  const auto text = [](const Json& fingerprint, const std::string& key) {
    return fingerprint.contains(key) ? printable(fingerprint[key].dump()) : "(nothing)";
  };
  const auto check = [&](const std::string& key) {
    require(saved.contains(key) && now.contains(key) && saved[key] == now[key], ErrorKind::kConfig,
            "{}: the run was started with {} = {}, now it is {}: resuming would not continue the same run", source,
            printable(key), text(saved, key), text(now, key));
  };
  if (keys.contains("seed")) check("seed");  // data_seed follows it where it is not given
  for (const std::string& key : keys) check(key);
}

// Names in `a` that are not in `b`, the first few of them.
std::string difference(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  constexpr size_t kMost = 5;
  std::vector<std::string> only;
  for (const std::string& name : a) {
    if (std::ranges::find(b, name) == b.end()) only.push_back(printable(name));
  }
  if (only.empty()) return "nothing";
  const size_t more = only.size() - std::min(kMost, only.size());
  only.resize(only.size() - more);
  return fmt::format("{}{}", fmt::join(only, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

// Optimizer state is there for what was trained, and belongs to the steps it was trained for.
void check_frozen(const std::vector<std::string>& saved, const std::vector<std::string>& now,
                  const std::string& source) {
  require(saved == now, ErrorKind::kConfig,
          "{}: the run was started with other trainable parameters. Frozen then and not now: {}. Frozen now and not "
          "then: {}. Give the same --freeze or --train_only, or start a new run from the checkpoint with "
          "--model_name_or_path",
          source, difference(saved, now), difference(now, saved));
}

RunState read_state_file(const models::Model& model, const Json& fingerprint, const fs::path& folder) {
  const std::string source = (folder / kStateFile).string();
  const Json document = read_json(folder / kStateFile, kMaxIndexBytes);
  check_fingerprint(get_required<Json>(document, "fingerprint", source), fingerprint, source);
  check_frozen(get_or<std::vector<std::string>>(document, "frozen_parameters", {}, source), frozen_names(model),
               source);
  return state_from(get_required<Json>(document, "state", source), source);
}

}  // namespace

void write_run(const models::Model& model, ShardedParameters& parameters, const RunState& state,
               const Json& fingerprint, TensorFiles& files) {
  write_model_parts(model, parameters, files);
  write_optimizer_piece(model, parameters, files);
  if (parameters.rank() != 0) return;
  Json document{{"state", to_json(state)}, {"fingerprint", fingerprint}};
  if (const auto frozen = frozen_names(model); !frozen.empty()) document["frozen_parameters"] = frozen;
  files.add_text(kStateFile, json_text(document, 2) + "\n");
}

monitor::TrainerState read_history(const fs::path& folder) {
  const fs::path path = folder / kHistoryFile;
  return monitor::trainer_state_from_json(read_json(path, kMaxHistoryBytes), path.string());
}

void require_same_run(const models::Model& model, const Json& fingerprint, const fs::path& folder) {
  read_state_file(model, fingerprint, folder);
}

RunState read_run(const models::Model& model, ShardedParameters& parameters, const Json& fingerprint,
                  const fs::path& folder) {
  RunState state = read_state_file(model, fingerprint, folder);
  read_model(model, parameters, folder);
  read_optimizer(model, parameters, folder);
  return state;
}

}  // namespace strake::training
