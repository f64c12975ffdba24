#include "strake/inference/encoder_checkpoint.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "strake/core/log.h"
#include "strake/models/encoder/family.h"

namespace strake::inference {
namespace {

// As Transformers does of tensors that are UNEXPECTED. Heads of other tasks are expected beside an encoder.
void warn_of_unused(const std::filesystem::path& folder, const models::EncoderModel& model,
                    const tensors::CheckpointFiles& files) {
  const std::string prefix = model.checkpoint_prefix();
  const auto& family = models::find_family(model.config().model_type, folder.string());
  const std::vector<std::string> heads = models::head_prefixes(family, model.config());
  std::vector<std::string> unused;
  for (const std::string& name : models::unused_names(model, files)) {
    const std::string_view own = name.starts_with(prefix) ? std::string_view(name).substr(prefix.size()) : name;
    const auto begins_own = [&](const std::string& head) { return own.starts_with(head); };
    if (std::ranges::none_of(heads, begins_own)) unused.push_back(name);
  }
  if (unused.empty()) return;
  constexpr size_t kLongestList = 300;
  log::warning("{}: {} tensor{} that config.json has no use for: {}", folder.string(), unused.size(),
               unused.size() == 1 ? "" : "s", printable(fmt::format("{}", fmt::join(unused, ", ")), kLongestList));
}

}  // namespace

EncoderCheckpoint::EncoderCheckpoint(const EncoderSource& from)
    : from_(from), model_(from.config), files_(from.folder) {
  if (const auto* tokens = std::get_if<TokenHead>(&from.head)) {
    token_head_.emplace(from.config, tokens->checkpoint_name, tokens->outputs, models::TokenHeadBlock::Dropout{});
  }
  warn_of_unused(from.folder, model_, files_);
}

const models::Block* EncoderCheckpoint::head() const {
  if (token_head_) return &*token_head_;
  return std::holds_alternative<SequenceHead>(from_.head) ? model_.blocks().back().get() : nullptr;
}

at::Tensor EncoderCheckpoint::read(const models::Block& block) {
  const models::WeightSource source{.model = model_, .files = files_};
  models::check_block(block, source);  // before memory is taken for what config.json says
  at::Tensor flat = at::zeros({block.layout().numel()});
  models::load_block(block, source, flat, initialized_);
  return flat;
}

void EncoderCheckpoint::require_head() const {
  if (initialized_.empty()) return;
  const bool classifies = std::holds_alternative<SequenceHead>(from_.head);
  fail(ErrorKind::kConfig, "{} is not fine-tuned for {}: it has no tensor '{}'{}", from_.folder.string(),
       classifies ? "classification" : "this task", initialized_.front(),
       classifies ? ". Train it with strake train first" : "");
}

size_t find_parameter(const models::Block& block, const std::string& name) {
  const auto found = std::ranges::find(block.parameters(), block.name() + "." + name, &models::ParameterSpec::name);
  return static_cast<size_t>(found - block.parameters().begin());
}

void require_finite(const std::string& name, const at::Tensor& parameter) {
  constexpr uint32_t kMagnitude = 0x7FFFFFFF;
  constexpr uint32_t kInfinity = 0x7F800000;  // NaN comes after it
  const float* const values = parameter.const_data_ptr<float>();
  uint32_t largest = 0;
  for (int64_t i = 0; i < parameter.numel(); ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & kMagnitude);
  }
  require(largest < kInfinity, ErrorKind::kNumeric, "parameter '{}' holds infinity or NaN", name);
}

}  // namespace strake::inference
