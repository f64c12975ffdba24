#include "strake/training/gradient_reducer.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "strake/core/error.h"

namespace strake::training {

// Writes the gradients of one block into a flat fp32 buffer: over what is there, or onto it.
class GradientReducer::BlockSink final : public models::GradientSink {
 public:
  explicit BlockSink(const models::Block& block) : block_(block), written_(block.parameters().size()) {}

  void begin(at::Tensor target, comm::Fold fold) {
    target_ = std::move(target);
    fold_ = fold;
    std::ranges::fill(written_, 0);
  }
  at::Tensor end() {
    for (size_t i = 0; i < written_.size(); ++i) {
      require(written_[i] != 0, ErrorKind::kInternal, "parameter '{}' got no gradient", block_.parameters()[i].name);
    }
    return std::move(target_);
  }

  void accept(size_t parameter, const at::Tensor& gradient) override {
    at::Tensor target = claim(parameter);
    comm::fold_piece(gradient, target, fold_);
  }
  at::Tensor add_target(size_t parameter) override {
    at::Tensor target = claim(parameter);
    if (fold_ == comm::Fold::kOverwrite) target.zero_();
    return target;
  }

 private:
  at::Tensor claim(size_t parameter) {
    const auto& entry = block_.layout().entries()[parameter];
    // A second contribution would be added in another order on one rank than on several.
    require(written_[parameter]++ == 0, ErrorKind::kInternal, "parameter '{}' got two gradients", entry.name);
    return tensors::FlatLayout::view(target_, entry);
  }

  const models::Block& block_;
  at::Tensor target_;
  comm::Fold fold_ = comm::Fold::kOverwrite;
  std::vector<char> written_;
};

GradientReducer::GradientReducer(const models::SequenceClassifier& model, ShardedParameters& parameters,
                                 comm::Comm& comm)
    : model_(model), parameters_(parameters), comm_(comm) {
  if (comm.size() > 1) queue_ = std::make_unique<comm::CommQueue>();
  for (const auto& block : model.blocks()) sinks_.push_back(std::make_unique<BlockSink>(*block));
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::begin_micro_step(int64_t k, int contributors) {
  first_micro_step_ = k == 0;
  contributors_ = contributors;
}

models::GradientSink& GradientReducer::sink(size_t i) { return *sinks_[i]; }

void GradientReducer::begin(size_t i) {
  BlockSink& sink = *sinks_[i];
  if (queue_) {
    at::Tensor buffer = take_buffer(model_.blocks()[i]->layout().numel());
    model_.blocks()[i]->layout().zero_gaps(buffer);
    sink.begin(std::move(buffer), comm::Fold::kOverwrite);
  } else {
    sink.begin(parameters_.block(i).gradient, first_micro_step_ ? comm::Fold::kOverwrite : comm::Fold::kAdd);
  }
}

void GradientReducer::reduce(size_t i) {
  const bool contributes = comm_.rank() < contributors_;
  at::Tensor gradient = contributes ? sinks_[i]->end() : at::Tensor();
  if (!queue_) return;
  const comm::Fold fold = first_micro_step_ ? comm::Fold::kOverwrite : comm::Fold::kAdd;
  queue_->post([this, i, fold, contributors = contributors_, gradient = std::move(gradient)]() mutable {
    BlockShard& block = parameters_.block(i);
    comm_.reduce_scatter(gradient, contributors, block.layout, block.gradient, fold);
    if (gradient.defined()) return_buffer(std::move(gradient));
  });
}

void GradientReducer::finish() {
  if (queue_) queue_->wait();
}

at::Tensor GradientReducer::take_buffer(int64_t numel) {
  const std::lock_guard lock(mutex_);
  const auto fits = std::ranges::find_if(free_buffers_, [&](const at::Tensor& b) { return b.numel() == numel; });
  if (fits == free_buffers_.end()) return at::empty({numel}, at::kFloat);
  at::Tensor buffer = std::move(*fits);
  free_buffers_.erase(fits);
  return buffer;
}

void GradientReducer::return_buffer(at::Tensor buffer) {
  const std::lock_guard lock(mutex_);
  free_buffers_.push_back(std::move(buffer));
}

}  // namespace strake::training
