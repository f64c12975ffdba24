#include "strake/training/planned_reducer.h"

#include <algorithm>
#include <utility>

#include "strake/comm/staged_comm.h"

namespace strake::training {

using models::MemoryMeter;
using models::MemoryUse;
using models::PlannedFold;

PlannedReducer::PlannedReducer(const MemoryPlanRequest& request, const Units& units, MemoryMeter& meter)
    : request_(request),
      units_(units),
      meter_(meter),
      is_tied_(request.model.blocks().size()),
      open_(request.model.blocks().size()),
      buffers_(meter, MemoryUse::kGradientBuffers) {
  for (const auto& block : request.model.blocks()) {
    for (const models::TiedParameter& tied : block->tied()) {
      if (tied.trained == models::Trained::kYes) is_tied_[tied.block] = 1;
    }
  }
}

void PlannedReducer::begin(size_t i, PlannedFold fold) {
  if (i + 1 == request_.model.blocks().size()) arrive();
  open(i, fold);
  for (const models::TiedParameter& tied : request_.model.blocks()[i]->tied()) {
    if (tied.trained == models::Trained::kYes) open(tied.block, fold);
  }
}

void PlannedReducer::reduce(size_t i, const PlannedParameters& parameters) {
  const Unit* unit = trained_unit(i);
  if (unit == nullptr) return;
  int64_t bytes = std::exchange(open_[i], std::nullopt).value_or(0);
  if (rounds() && bytes > 0) {
    const int64_t rounded = bytes / element_size(Precision::kFp32) * exchanged_size();
    buffers_.take(rounded);
    buffers_.put_back(std::exchange(bytes, rounded));
  }
  arrive();
  if (bytes == 0) return;
  if ((request_.placement == RankPlacement::kProcesses || request_.is_on_gpu()) && request_.num_ranks > 1) {
    // Where every rank keeps the whole sum, each adds up a piece first.
    const int64_t piece = parameters.unit(units_.of_block(i).front()).layout.size(0);
    const int64_t window = std::min(comm::staging_window(request_.num_ranks), piece);
    // Of embeddings the rows that a batch touches are packed to be sent, where the host knows them.
    const bool packs =
        !request_.is_on_gpu() && has_sparse_gradient(request_.model, i) && unit->layout.numel() >= comm::kLeastSparse;
    staging_ =
        meter_.lend(MemoryUse::kGradientBuffers, (packs ? 2 : 1) * exchanged_size() * request_.num_ranks * window);
  }
  on_the_way_ = bytes;
  if (request_.num_ranks == 1 && !request_.options.sharding.offload.parameters) arrive();
}

const Unit* PlannedReducer::trained_unit(size_t i) const {
  const Unit& first = units_[units_.of_block(i).front()];
  return first.is_frozen() ? nullptr : &first;
}

void PlannedReducer::open(size_t i, PlannedFold fold) {
  const Unit* unit = trained_unit(i);
  if (open_[i] || unit == nullptr) return;
  const bool is_exact = !rounds() && request_.options.accumulation == Precision::kFp32;
  const bool is_direct = request_.num_ranks == 1 && is_exact && (fold == PlannedFold::kOverwrite || is_tied_[i] == 0);
  open_[i] = is_direct ? 0 : unit->layout.numel() * element_size(Precision::kFp32);
  if (!is_direct) buffers_.take(*open_[i]);
}

void PlannedReducer::arrive() {
  staging_.reset();
  if (on_the_way_ > 0) buffers_.put_back(std::exchange(on_the_way_, 0));
}

}  // namespace strake::training
