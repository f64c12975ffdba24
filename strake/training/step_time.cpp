#include "strake/training/step_time.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "strake/optim/optimizer.h"
#include "strake/training/planned_parameters.h"
#include "strake/training/training_flops.h"
#include "strake/training/unit_uses.h"

namespace strake::training {
namespace {

// Of `bytes` that all ranks of a group need, those that one rank sends.
int64_t leaves(int64_t bytes, int64_t group) { return bytes / group * (group - 1); }

// The rank's computing thread, and its communication thread, which takes what is posted in that order.
class Threads {
 public:
  void compute(double seconds) { now_ += seconds; }
  // Returns when it will be done.
  double post(double seconds) {
    posted_ += seconds;
    return free_ = std::max(free_, now_) + seconds;
  }
  void wait_for(double moment) {
    waited_ += std::max(0.0, moment - now_);
    now_ = std::max(now_, moment);
  }
  // What went on while the computing thread had something to do.
  double hidden() const { return posted_ - waited_; }

 private:
  double now_ = 0;   // of the computing thread
  double free_ = 0;  // when the communication thread will be
  double posted_ = 0;
  double waited_ = 0;
};

class PlannedStep {
 public:
  PlannedStep(const MemoryPlanRequest& request, const RankSpeed& speed, std::vector<BlockFlops> flops)
      : options_(request.options),
        model_(request.model),
        speed_(speed),
        flops_(std::move(flops)),
        num_ranks_(request.num_ranks),
        is_hybrid_(options_.sharding.stage.parameters == Kept::kGroupShard),
        units_(request.model),
        placements_(place_units(request, units_, 0)),
        uses_(request.model, units_),
        arrivals_(units_.size()) {
    for (int64_t k = 0; k < options_.gradient_accumulation_steps; ++k) micro_step();
    threads_.wait_for(reduced_);
    time_.hidden = threads_.hidden() * (1 - 1.0 / speed_.threads);
    update();
  }

  const StepTime& time() const { return time_; }
  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  int64_t element_size() const { return training::element_size(options_.precision()); }

  void micro_step() {
    const size_t last = model_.blocks().size() - 1;
    const size_t first = model_.first_trained_block();
    for (size_t i = 0; i <= last; ++i) {
      gather(i);
      prefetch(i + 1);
      compute(flops_[i].forward);
      if (i != last) release(i);
    }
    for (size_t i = last + 1; i-- > first;) {
      gather(i);
      if (i > first) prefetch(i - 1);
      compute(flops_[i].backward);
      reduce(i);
      release(i);
    }
  }

  void compute(double flops) {
    const double seconds = flops / speed_.flops;
    time_.arithmetic += seconds;
    threads_.compute(seconds);
  }

  void prefetch(size_t i) {
    uses_.prefetch(i, [this](size_t u) {
      if (!placements_[u].is_kept_whole) arrivals_[u] = threads_.post(gather_unit(u));
    });
  }
  void gather(size_t i) {
    prefetch(i);
    uses_.for_each_needed(i, [this](size_t u) { threads_.wait_for(arrivals_[u]); });
  }
  void release(size_t i) {
    uses_.release(i, [](size_t) {});
  }
  void reduce(size_t i) {
    const Unit& unit = units_[units_.of_block(i).front()];
    if (unit.is_frozen()) return;
    const int64_t bytes = unit.layout.numel() * training::element_size(options_.reduction);
    threads_.wait_for(reduced_);  // one sum on the way at a time
    reduced_ = threads_.post(send(leaves(bytes, num_ranks_), speed_.sent_bytes));
  }

  // What the parameters of a unit take to come, in seconds.
  double gather_unit(size_t u) {
    const UnitPlacement& unit = placements_[u];
    const int64_t bytes = units_[u].layout.numel() * element_size();
    const double read = unit.keeps_parameters ? 0 : use_disk(unit.kept_count * element_size());
    if (is_hybrid_) {
      return read + send(leaves(bytes, options_.sharding.group_size), speed_.sent_bytes_in_group);
    }
    return read + send(leaves(bytes, num_ranks_), speed_.sent_bytes);
  }

  double send(int64_t bytes, double per_second) {
    if (bytes == 0) return 0;
    sent_bytes_ += bytes;
    const double seconds = static_cast<double>(bytes) / per_second;
    time_.communication += seconds;
    return seconds;
  }
  double use_disk(int64_t bytes) {
    if (!speed_.disk_bytes) return 0;
    const double seconds = static_cast<double>(bytes) / *speed_.disk_bytes;
    time_.disk += seconds;
    return seconds;
  }

  // The whole gradient where stage 0 wants it, the optimizer's pass, and new parameters for the other ranks: one after
  // the other, but that windows of the pass are read ahead and written behind.
  void update() {
    const optim::Optimizer optimizer(options_.optimizer_settings());
    const int64_t of_pass = bytes_of_pass(optimizer);
    const int64_t on_disk = bytes_on_disk(optimizer);
    for (size_t u = 0; u < placements_.size(); ++u) {
      const UnitPlacement& unit = placements_[u];
      if (unit.is_frozen) continue;
      const int64_t numel = units_[u].layout.numel();
      if (options_.sharding.stage.reduced() == Reduced::kToAllRanks) {
        send(leaves(numel * training::element_size(options_.accumulation), num_ranks_), speed_.sent_bytes);
      }
      const double pass = static_cast<double>(unit.count * of_pass) / speed_.memory_bytes;
      time_.optimizer += pass;
      if (unit.is_on_disk) time_.hidden += std::min(pass, use_disk(unit.count * on_disk));
      complete(unit, numel);
    }
  }
  void complete(const UnitPlacement& unit, int64_t numel) {
    if (unit.is_shared || unit.owns_whole) return;
    if (unit.is_kept_whole) {
      send(leaves(numel * element_size(), num_ranks_), speed_.sent_bytes);
    } else if (is_hybrid_) {
      const int64_t bytes = unit.kept_count * element_size();
      send(leaves(bytes, num_ranks_ / options_.sharding.group_size), speed_.sent_bytes);
      if (!unit.keeps_parameters) use_disk(bytes);  // the own part is read, the others' are written
    }
  }

  // Of an element: all that is read and written, the norm's look at the gradient included. LAMB goes through everything
  // once more.
  int64_t bytes_of_pass(const optim::Optimizer& optimizer) const {
    const int64_t updated = training::element_size(options_.master) + state_bytes(options_);
    const int64_t read = training::element_size(options_.accumulation) + updated;
    const int64_t written = updated + (options_.has_master_copies() ? element_size() : 0);
    const int64_t of_norm = training::element_size(options_.accumulation);
    return read + written + of_norm + (optimizer.needs_trust_ratios() ? read : 0);
  }
  int64_t bytes_on_disk(const optim::Optimizer& optimizer) const {
    int64_t bytes = state_bytes(options_);
    for (const Precision weights : options_.weights_on_disk()) bytes += training::element_size(weights);
    return bytes * (optimizer.needs_trust_ratios() ? 4 : 2);
  }

  const TrainingOptions& options_;
  const models::Model& model_;
  RankSpeed speed_;
  std::vector<BlockFlops> flops_;
  int64_t num_ranks_;
  bool is_hybrid_;
  Units units_;
  std::vector<UnitPlacement> placements_;
  UnitUses uses_;
  std::vector<double> arrivals_;  // by unit: of its parameters
  double reduced_ = 0;            // when the last sum of gradients will be done
  Threads threads_;
  StepTime time_;
  int64_t sent_bytes_ = 0;
};

}  // namespace

StepTime step_time(const MemoryPlanRequest& request, const RankSpeed& speed) {
  const auto recomputation =
      request.options.gradient_checkpointing ? Recomputation::kCounted : Recomputation::kNotCounted;
  return PlannedStep(request, speed, block_flops(request.model, request.batch, recomputation)).time();
}

int64_t communicated_bytes(const MemoryPlanRequest& request) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const RankSpeed speed{.flops = kInfinity,
                        .sent_bytes = kInfinity,
                        .sent_bytes_in_group = kInfinity,
                        .memory_bytes = kInfinity,
                        .disk_bytes = std::nullopt};
  return PlannedStep(request, speed, std::vector<BlockFlops>(request.model.blocks().size())).sent_bytes();
}

}  // namespace strake::training
