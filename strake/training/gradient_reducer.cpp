#include "strake/training/gradient_reducer.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "strake/core/error.h"
#include "strake/kernels/convert.h"

namespace strake::training {

// Writes the gradients of one block into a flat fp32 buffer: over what is there, or onto it.
class GradientReducer::BlockSink final : public models::GradientSink {
 public:
  explicit BlockSink(const models::Block& block)
      : block_(block), uses_(block.parameters().size(), 1), written_(block.parameters().size()) {}

  // Another block uses this parameter too.
  void tie(size_t parameter) {
    ++uses_[parameter];
    is_tied_ = true;
  }
  bool is_tied() const { return is_tied_; }
  bool is_open() const { return target_.defined(); }

  void begin(at::Tensor target, comm::Fold fold) {
    target_ = std::move(target);
    fold_ = fold;
    std::ranges::fill(written_, 0);
  }
  at::Tensor end() {
    for (size_t i = 0; i < written_.size(); ++i) {
      require(written_[i] == uses_[i], ErrorKind::kInternal, "parameter '{}' got {}", block_.parameters()[i].name,
              written_[i] == 0 ? "no gradient" : "fewer gradients than it has uses");
    }
    return std::move(target_);
  }

  void accept(size_t parameter, const at::Tensor& gradient) override {
    at::Tensor target = claim(parameter);
    comm::fold_piece(gradient, target, fold_of(parameter));
  }
  at::Tensor add_target(size_t parameter) override {
    at::Tensor target = claim(parameter);
    if (fold_of(parameter) == comm::Fold::kOverwrite) target.zero_();
    return target;
  }

 private:
  at::Tensor claim(size_t parameter) {
    const auto& entry = block_.layout().entries()[parameter];
    // One too many would be added in another order on one rank than on several.
    require(written_[parameter]++ < uses_[parameter], ErrorKind::kInternal, "parameter '{}' got two gradients",
            entry.name);
    return tensors::FlatLayout::view(target_, entry);
  }
  // For the use that was just claimed.
  comm::Fold fold_of(size_t parameter) const { return written_[parameter] > 1 ? comm::Fold::kAdd : fold_; }

  const models::Block& block_;
  at::Tensor target_;
  comm::Fold fold_ = comm::Fold::kOverwrite;
  bool is_tied_ = false;
  std::vector<int> uses_;     // by parameter: gradients a micro-batch gives it
  std::vector<int> written_;  // by parameter: gradients it has been given
};

GradientReducer::GradientReducer(const models::Model& model, ShardedParameters& parameters, comm::Comm& comm,
                                 Precision reduction)
    : model_(model),
      parameters_(parameters),
      comm_(comm),
      queue_(parameters.queue()),
      reduction_(scalar_type(reduction)) {
  for (const auto& block : model.blocks()) sinks_.push_back(std::make_unique<BlockSink>(*block));
  for (const auto& block : model.blocks()) {
    for (const models::TiedParameter& tied : block->tied()) sinks_[tied.block]->tie(tied.parameter);
  }
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::begin_micro_step(int64_t k, int contributors) {
  first_micro_step_ = k == 0;
  contributors_ = contributors;
}

models::GradientSink& GradientReducer::sink(size_t i) { return *sinks_[i]; }

void GradientReducer::begin(size_t i) {
  open(i);
  for (const models::TiedParameter& tied : model_.blocks()[i]->tied()) open(tied.block);
}

void GradientReducer::open(size_t i) {
  BlockSink& sink = *sinks_[i];
  if (sink.is_open()) return;
  if (writes_into_sum(i)) {
    sink.begin(parameters_.block(i).gradient, first_micro_step_ ? comm::Fold::kOverwrite : comm::Fold::kAdd);
    return;
  }
  at::Tensor buffer = take_buffer(model_.blocks()[i]->layout().numel(), at::kFloat);
  model_.blocks()[i]->layout().zero_gaps(buffer);
  sink.begin(std::move(buffer), comm::Fold::kOverwrite);
}

bool GradientReducer::writes_into_sum(size_t i) const {
  const bool is_exact = reduction_ == at::kFloat && parameters_.block(i).gradient.scalar_type() == at::kFloat;
  return comm_.size() == 1 && is_exact && (first_micro_step_ || !sinks_[i]->is_tied());
}

at::Tensor GradientReducer::to_reduce(size_t i) {
  if (comm_.rank() >= contributors_) return at::empty({0}, reduction_);
  at::Tensor gradient = sinks_[i]->end();
  if (reduction_ == at::kFloat) return gradient;
  at::Tensor rounded = take_buffer(gradient.numel(), reduction_);
  const auto* from = gradient.const_data_ptr<float>();
  if (reduction_ == at::kHalf) {
    kernels::convert(from, static_cast<kernels::Half*>(rounded.mutable_data_ptr()), gradient.numel());
  } else {
    kernels::convert(from, static_cast<kernels::BFloat16*>(rounded.mutable_data_ptr()), gradient.numel());
  }
  return_buffer(std::move(gradient));
  return rounded;
}

void GradientReducer::reduce(size_t i) {
  at::Tensor gradient = to_reduce(i);
  if (gradient.is_same(parameters_.block(i).gradient)) return;
  const comm::Fold fold = first_micro_step_ ? comm::Fold::kOverwrite : comm::Fold::kAdd;
  auto job = [this, i, fold, contributors = contributors_, gradient = std::move(gradient)]() mutable {
    at::Tensor sum = parameters_.gradient_piece(i);
    comm_.reduce_scatter(gradient, contributors, parameters_.block(i).layout, sum, fold);
    if (gradient.numel() > 0) return_buffer(std::move(gradient));
  };
  if (comm_.size() == 1) {
    job();
  } else {
    // One sum on the way at a time: where communication is the slower part, gradients must not pile up.
    if (on_the_way_) queue_->wait_for(*on_the_way_);
    on_the_way_ = queue_->post(std::move(job));
  }
}

void GradientReducer::finish() {
  if (queue_ != nullptr) queue_->wait();
}

void GradientReducer::release_buffers() {
  const std::lock_guard lock(mutex_);
  free_buffers_.clear();
}

at::Tensor GradientReducer::take_buffer(int64_t numel, at::ScalarType dtype) {
  const std::lock_guard lock(mutex_);
  const auto fits = std::ranges::find_if(
      free_buffers_, [&](const at::Tensor& b) { return b.numel() == numel && b.scalar_type() == dtype; });
  if (fits == free_buffers_.end()) return at::empty({numel}, dtype);
  at::Tensor buffer = std::move(*fits);
  free_buffers_.erase(fits);
  return buffer;
}

void GradientReducer::return_buffer(at::Tensor buffer) {
  const std::lock_guard lock(mutex_);
  free_buffers_.push_back(std::move(buffer));
}

}  // namespace strake::training
