#include "strake/inference/scorer.h"

#include <ATen/ops/zeros.h>

#include "strake/core/error.h"
#include "strake/models/forward.h"
#include "strake/models/weights.h"

namespace strake::inference {

Scorer::Scorer(const std::filesystem::path& folder, Precision precision) : model_(models::read_encoder_config(folder)) {
  const tensors::CheckpointFiles files(folder);
  models::LoadReport report;
  for (const auto& block : model_.blocks()) {
    at::Tensor flat = at::zeros({block->layout().numel()});
    try {
      models::load_block(*block, {.config = config(), .files = files}, flat, report);
    } catch (Error& error) {
      error.add_context("while loading " + folder.string());
      throw;
    }
    blocks_.push_back(precision == Precision::kBf16 ? flat.to(at::kBFloat16) : flat);
  }
  require(report.initialized.empty(), ErrorKind::kConfig,
          "{} is not fine-tuned for classification: it has no tensor '{}'. Train it with strake train first",
          folder.string(), report.initialized.empty() ? "" : report.initialized.front());
}

at::Tensor Scorer::logits(const tensors::PackedBatch& batch) const {
  return models::forward_logits(
             model_, [&](size_t i) { return model_.blocks()[i]->view(blocks_[i], nullptr); }, batch)
      .to(at::kFloat);
}

}  // namespace strake::inference
