#include "strake/training/stepper.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <cmath>

#include "strake/core/error.h"
#include "strake/core/memory.h"
#include "strake/data/collate.h"
#include "strake/training/batch_shape.h"
#include "strake/training/plain_nan.h"
#include "strake/training/tape.h"

namespace strake::training {

Stepper::Stepper(const models::Model& model, ShardedParameters& parameters, comm::Comm& comm,
                 const TrainingOptions& options)
    : model_(model),
      parameters_(parameters),
      comm_(comm),
      options_(options),
      reducer_(model, parameters, comm, options.reduction) {}

StepReport Stepper::run(const data::TokenDataset& dataset, const data::GlobalStep& global, const StepPlan& plan) {
  const auto start = Clock::now();
  if (parts_) parts_.emplace();
  part_began_ = start;
  const auto num_micro_batches = static_cast<int64_t>(global.micro_batches.size());
  const PhiloxKey key = philox_key(options_.seed, static_cast<uint64_t>(plan.number));
  const models::BatchShape shape = shape_of(model_, dataset, global);
  // No more than the epoch still has: --gradient_accumulation_steps may be any number.
  std::vector<at::Tensor> losses(static_cast<size_t>((num_micro_batches + comm_.size() - 1) / comm_.size()));
  for (int64_t k = 0; k * comm_.size() < num_micro_batches; ++k) {
    const int64_t contributors = std::min<int64_t>(comm_.size(), num_micro_batches - k * comm_.size());
    reducer_.begin_micro_step(k, static_cast<int>(contributors));
    const auto share = global.share(comm_.rank(), comm_.size(), static_cast<int>(k));
    std::optional<tensors::PackedBatch> batch;
    if (!share.empty()) {
      batch = tensors::to_device(model_.prepared(data::collate(dataset, share), key), parameters_.device());
    }
    // A last block that takes its gradient at once knows the divisor only, so the scale is part of it.
    losses[k] = forward_backward(batch, key, static_cast<double>(shape.targets) / plan.loss_scale);
  }
  reducer_.finish();
  end_part(&StepParts::reduction);

  StepReport report{
      .step = plan.number, .loss_scale = plan.loss_scale, .learning_rate = plan.learning_rate, .batch = shape};
  // GPUs are waited for here, when they have been given all the work.
  report.gradient_norm = plain_nan(parameters_.gradient_norm() / plan.loss_scale);
  gather_losses(losses, report);
  report.skipped = options_.precision() == Precision::kFp16 && !std::isfinite(report.gradient_norm);
  if (!report.skipped) update(plan, report);
  end_part(&StepParts::update);
  report.parts = parts_;
  report.seconds = seconds_since(start);
  return report;
}

void Stepper::update(const StepPlan& plan, const StepReport& report) {
  require(std::isfinite(report.loss) && std::isfinite(report.gradient_norm), ErrorKind::kNumeric,
          "step {}: loss is {} and the gradient's norm {}; training stops, checkpoints saved so far are kept. Try a "
          "lower --learning_rate, or fp32 instead of --bf16 or --fp16",
          plan.number, report.loss, report.gradient_norm);
  // Transformers' clip_grad_norm_: scale by max / (norm + 1e-6) if that is below 1.
  const double clip = options_.max_grad_norm > 0 ? options_.max_grad_norm / (report.gradient_norm + 1e-6) : 1.0;
  parameters_.update({.learning_rate = plan.learning_rate,
                      .step = plan.number - plan.skipped,
                      .gradient_scale = std::min(1.0, clip) / plan.loss_scale,
                      .betas = plan.betas});
}

void Stepper::release_buffers() {
  parameters_.release_buffers();
  reducer_.release_buffers();
  return_freed_memory();
}

at::Tensor Stepper::forward_backward(const std::optional<tensors::PackedBatch>& batch, const PhiloxKey& key,
                                     double divisor) {
  const auto blocks = model_.blocks();
  const size_t last = blocks.size() - 1;
  const size_t first = model_.first_trained_block();  // backward ends there
  const ShardedParameters::Sinks sinks = [this](size_t i) { return &reducer_.sink(i); };
  const tensors::PackedBatch nothing;
  const models::StepContext context{.batch = batch ? *batch : nothing, .dropout_key = key, .loss_divisor = divisor};
  Tape tape;
  at::Tensor activations;
  for (size_t i = 0; i <= last; ++i) {
    const models::Parameters parameters = parameters_.gather(i, sinks);
    parameters_.prefetch(i + 1);
    const Keep keep = i < first                                       ? Keep::kNothing
                      : !options_.gradient_checkpointing || i == last ? Keep::kGraph
                      : options_.checkpoints_on_host                  ? Keep::kInputOnHost
                                                                      : Keep::kInput;
    if (batch) activations = tape.forward(*blocks[i], parameters, activations, context, keep);
    if (i != last) parameters_.release(i);  // the last block is the first one backwards
  }
  at::Tensor loss;
  at::Tensor gradient;
  if (batch) {
    const at::Tensor& output = activations.requires_grad_();
    loss = model_.loss(output, batch->labels, divisor);
    end_part(&StepParts::forward);
    loss.backward();
    gradient = output.grad();
  }
  for (size_t i = last + 1; i-- > first;) {
    const models::Parameters parameters = parameters_.gather(i, sinks);
    if (i > first) parameters_.prefetch(i - 1);
    end_part(&StepParts::backward);
    if (batch) {
      reducer_.begin(i);
      end_part(&StepParts::reduction);
      gradient = tape.backward(*blocks[i], parameters, gradient, context);
    }
    end_part(&StepParts::backward);
    reducer_.reduce(i);
    end_part(&StepParts::reduction);
    parameters_.release(i);
  }
  return batch ? loss.detach() : loss;
}

void Stepper::end_part(double StepParts::* part) {
  if (!parts_) return;
  const at::Device device = parameters_.device();
  if (device.is_cuda()) c10::impl::getDeviceGuardImpl(at::kCUDA)->getStream(device).synchronize();
  const auto now = Clock::now();
  (*parts_).*part += seconds_between(part_began_, now);
  part_began_ = now;
}

void Stepper::gather_losses(const std::vector<at::Tensor>& losses, StepReport& report) {
  const size_t num_losses = losses.size();
  std::vector<double> own;
  for (const at::Tensor& loss : losses) own.push_back(loss.defined() ? loss.item<double>() : 0);
  const auto answer = [](const std::function<bool()>& question) { return question && question() ? 1.0 : 0.0; };
  own.push_back(answer(questions_.is_asked_to_end));
  own.push_back(answer(questions_.is_saving));
  const std::vector<double> all = comm::all_gather_values(comm_, own);
  const auto value = [&](int rank, size_t k) { return all[static_cast<size_t>(rank) * own.size() + k]; };
  double sum = 0;
  for (size_t k = 0; k < num_losses; ++k) {
    for (int rank = 0; rank < comm_.size(); ++rank) sum += value(rank, k);
  }
  report.loss = plain_nan(sum / report.loss_scale);
  for (int rank = 0; rank < comm_.size(); ++rank) {
    report.ends_run |= value(rank, num_losses) != 0;
    report.is_saving |= value(rank, num_losses + 1) != 0;
  }
}

}  // namespace strake::training
