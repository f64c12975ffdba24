#include "strake/training/gradient_reducer.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>

#include "strake/core/error.h"
#include "strake/kernels/convert.h"
#include "strake/models/place.h"

namespace strake::training {

using tensors::TouchedChunks;

// Writes the gradients of one block's trained unit into a flat fp32 buffer: over what is there, or onto it. Knows which
// chunks it touches, and which of them an earlier use of the buffer did: of tables that few rows are added to, only
// those are cleared.
class GradientReducer::BlockSink final : public models::GradientSink {
 public:
  BlockSink(const Units& units, size_t block, size_t num_parameters)
      : units_(units), block_(block), uses_(num_parameters), written_(num_parameters) {
    for (const size_t u : units.of_block(block)) {
      if (units[u].is_frozen()) continue;
      unit_ = u;
      for (const size_t parameter : units[u].parameters) uses_[parameter] = 1;
    }
  }

  // None: nothing in the block is trained.
  const std::optional<size_t>& unit() const { return unit_; }

  // Another block uses this parameter too.
  void tie(size_t parameter) {
    ++uses_[parameter];
    is_tied_ = true;
  }
  bool is_tied() const { return is_tied_; }
  bool is_open() const { return target_.defined(); }

  void begin(Buffer target, comm::Fold fold) {
    target_ = std::move(target.values);
    before_ = std::move(target.touched);
    touched_ = fold == comm::Fold::kAdd ? before_ : TouchedChunks::none(target_.numel());
    fold_ = fold;
    std::ranges::fill(written_, 0);
  }
  Buffer end() {
    for (size_t i = 0; i < written_.size(); ++i) {
      require(written_[i] == uses_[i], ErrorKind::kInternal, "parameter '{}' got {}", entry(i).name,
              written_[i] == 0 ? "no gradient" : "fewer gradients than it has uses");
    }
    return {std::move(target_), std::move(touched_)};
  }

  void accept(size_t parameter, const at::Tensor& gradient) override {
    at::Tensor target = claim_all(parameter);
    comm::fold_piece(gradient, target, fold_of(parameter));
  }
  Target target(size_t parameter) override {
    at::Tensor gradient = claim_all(parameter);
    return {.gradient = std::move(gradient),
            .store = fold_of(parameter) == comm::Fold::kAdd ? kernels::Store::kAdd : kernels::Store::kOverwrite};
  }
  at::Tensor add_target(size_t parameter, const Rows& rows) override {
    at::Tensor target = rows ? claim(parameter) : claim_all(parameter);
    const tensors::FlatLayout::Entry& place = entry(parameter);
    if (fold_of(parameter) == comm::Fold::kOverwrite) {
      tensors::for_each_run(
          place.begin, place.end, [&](int64_t i) { return before_.has(i); },
          [&](int64_t begin, int64_t end, bool touched) {
            if (touched) target_.narrow(0, begin, end - begin).zero_();
          });
    }
    if (rows) {
      const int64_t columns = place.shape.back();
      for (const int64_t row : *rows) touched_.add(place.begin + row * columns, place.begin + (row + 1) * columns);
    }
    return target;
  }

 private:
  at::Tensor claim(size_t parameter) {
    // One too many would be added in another order on one rank than on several.
    require(written_[parameter]++ < uses_[parameter], ErrorKind::kInternal, "parameter '{}' got {}",
            entry(parameter).name, uses_[parameter] == 0 ? "a gradient, but is frozen" : "two gradients");
    return tensors::FlatLayout::view(target_, entry(parameter));
  }
  at::Tensor claim_all(size_t parameter) {
    touched_.add(entry(parameter).begin, entry(parameter).end);
    return claim(parameter);
  }
  const tensors::FlatLayout::Entry& entry(size_t parameter) const {
    const Units::Place& place = units_.place(block_, parameter);
    return units_[place.unit].layout.entries()[place.entry];
  }
  // For the use that was just claimed.
  comm::Fold fold_of(size_t parameter) const { return written_[parameter] > 1 ? comm::Fold::kAdd : fold_; }

  const Units& units_;
  size_t block_;
  std::optional<size_t> unit_;
  at::Tensor target_;
  TouchedChunks before_;   // what was not zero when the target was given
  TouchedChunks touched_;  // what is not zero now
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
  touched_of_sums_.resize(model.blocks().size());
  for (size_t i = 0; i < model.blocks().size(); ++i) {
    sinks_.push_back(std::make_unique<BlockSink>(parameters.units(), i, model.blocks()[i]->parameters().size()));
  }
  for (const auto& block : model.blocks()) {
    for (const models::TiedParameter& tied : block->tied()) {
      if (tied.trained == models::Trained::kYes) sinks_[tied.block]->tie(tied.parameter);
    }
  }
}

// While an error unwinds, a sum may be on its way.
GradientReducer::~GradientReducer() {
  if (queue_ != nullptr) queue_->settle();
}

void GradientReducer::begin_micro_step(int64_t k, int contributors) {
  first_micro_step_ = k == 0;
  contributors_ = contributors;
}

models::GradientSink& GradientReducer::sink(size_t i) { return *sinks_[i]; }

void GradientReducer::begin(size_t i) {
  const bool is_first = i + 1 == model_.blocks().size();
  if (is_first && on_the_way_) {  // of the micro-batch before: its buffer is one of those that are taken now
    queue_->wait_for(*on_the_way_);
    on_the_way_.reset();
  }
  open(i);
  for (const models::TiedParameter& tied : model_.blocks()[i]->tied()) {
    if (tied.trained == models::Trained::kYes) open(tied.block);
  }
}

void GradientReducer::open(size_t i) {
  BlockSink& sink = *sinks_[i];
  if (sink.is_open() || !sink.unit()) return;
  const size_t u = *sink.unit();
  if (writes_into_sum(i)) {
    sink.begin({parameters_.unit(u).gradient, std::move(touched_of_sums_[i])},
               first_micro_step_ ? comm::Fold::kOverwrite : comm::Fold::kAdd);
    return;
  }
  const tensors::FlatLayout& layout = parameters_.units()[u].layout;
  Buffer buffer = take_buffer(layout.numel(), at::kFloat);
  layout.zero_gaps(buffer.values);
  sink.begin(std::move(buffer), comm::Fold::kOverwrite);
}

bool GradientReducer::writes_into_sum(size_t i) const {
  const at::Tensor& sum = parameters_.unit(*sinks_[i]->unit()).gradient;
  const bool is_exact = reduction_ == at::kFloat && sum.scalar_type() == at::kFloat;
  return comm_.size() == 1 && is_exact && (first_micro_step_ || !sinks_[i]->is_tied());
}

GradientReducer::Buffer GradientReducer::to_reduce(size_t i) {
  if (comm_.rank() >= contributors_) return {at::empty({0}, on_device(reduction_)), {}};
  Buffer gradient = sinks_[i]->end();
  if (reduction_ == at::kFloat) return gradient;
  Buffer rounded = take_buffer(gradient.values.numel(), reduction_);
  rounded.touched = gradient.touched;
  const auto* from = gradient.values.const_data_ptr<float>();
  void* const to = rounded.values.mutable_data_ptr();
  std::visit(
      [&](const auto& place) {
        if (reduction_ == at::kHalf) {
          kernels::convert(from, static_cast<kernels::Half*>(to), gradient.values.numel(), place);
        } else {
          kernels::convert(from, static_cast<kernels::BFloat16*>(to), gradient.values.numel(), place);
        }
      },
      models::place_of(gradient.values));
  return_buffer(std::move(gradient));
  return rounded;
}

void GradientReducer::reduce(size_t i) {
  if (!sinks_[i]->unit()) return;
  const size_t u = *sinks_[i]->unit();
  Buffer gradient = to_reduce(i);
  if (gradient.values.is_same(parameters_.unit(u).gradient)) {
    touched_of_sums_[i] = std::move(gradient.touched);
    return;
  }
  touched_of_sums_[i] = {};
  const comm::Fold fold = first_micro_step_ ? comm::Fold::kOverwrite : comm::Fold::kAdd;
  // Of others ranks need not tell each other that all is touched.
  const bool is_sparse = has_sparse_gradient(model_, i);
  auto job = [this, u, fold, is_sparse, contributors = contributors_, gradient = std::move(gradient)]() mutable {
    at::Tensor sum = parameters_.gradient_piece(u);
    comm::Addend addend(gradient.values);
    if (is_sparse) addend.touched = &gradient.touched;
    comm_.reduce_scatter(addend, contributors, parameters_.unit(u).layout, sum, fold);
    if (gradient.values.numel() > 0) return_buffer(std::move(gradient));
  };
  if (queue_ == nullptr) {
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

at::TensorOptions GradientReducer::on_device(at::ScalarType dtype) const {
  return at::TensorOptions(parameters_.device()).dtype(dtype);
}

GradientReducer::Buffer GradientReducer::take_buffer(int64_t numel, at::ScalarType dtype) {
  const std::lock_guard lock(mutex_);
  const auto fits = std::ranges::find_if(
      free_buffers_, [&](const Buffer& b) { return b.values.numel() == numel && b.values.scalar_type() == dtype; });
  if (fits == free_buffers_.end()) return {at::empty({numel}, on_device(dtype)), {}};
  Buffer buffer = std::move(*fits);
  free_buffers_.erase(fits);
  return buffer;
}

void GradientReducer::return_buffer(Buffer buffer) {
  const std::lock_guard lock(mutex_);
  free_buffers_.push_back(std::move(buffer));
}

}  // namespace strake::training
