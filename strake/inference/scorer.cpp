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
      models::load_block(*block, {.model = model_, .files = files}, flat, report);
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
  class Blocks final : public models::ParameterSource {
   public:
    explicit Blocks(const Scorer& scorer) : scorer_(scorer) {}
    models::Parameters acquire(size_t i) override {
      return scorer_.model_.blocks()[i]->view(scorer_.blocks_[i], nullptr);
    }

   private:
    const Scorer& scorer_;
  };
  Blocks blocks(*this);
  return models::forward(model_, blocks, batch).to(at::kFloat);
}

}  // namespace strake::inference
