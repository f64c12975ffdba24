#include "strake/models/encoder/token_masking.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace strake::models {
namespace {

constexpr int64_t kSpecialTokens = 2;  // one at each end
constexpr float kReplacedByMask = 0.8F;
constexpr float kReplacedByAny = 0.1F;

struct Candidate {
  uint32_t rank;  // random: the lowest ones are masked
  int64_t token;  // in the batch
  float fate;     // uniform in (0, 1)
  uint32_t other;

  bool operator<(const Candidate& that) const { return std::pair(rank, token) < std::pair(that.rank, that.token); }
};

Candidate candidate(const tensors::PackedBatch& batch, int64_t token, const PhiloxKey& key) {
  const auto row = static_cast<uint64_t>(batch.token_rows.const_data_ptr<int64_t>()[token]);
  const auto position = static_cast<uint32_t>(batch.positions.const_data_ptr<int32_t>()[token]);
  const PhiloxBlock random = philox(key, {static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32), position, 0});
  return {.rank = random[0], .token = token, .fate = to_uniform(random[1]), .other = random[2]};
}

int32_t id_instead(const Candidate& masked, int32_t id, const TokenMasking& masking) {
  if (masked.fate < kReplacedByMask) return masking.mask_token;
  if (masked.fate >= kReplacedByMask + kReplacedByAny) return id;
  return static_cast<int32_t>((uint64_t{masked.other} * static_cast<uint64_t>(masking.num_tokens)) >> 32);
}

}  // namespace

int64_t TokenMasking::num_masked(int64_t length) const {
  const int64_t candidates = length - kSpecialTokens;
  if (candidates <= 0) return 0;
  return std::clamp<int64_t>(std::llround(probability * static_cast<double>(candidates)), 1, candidates);
}

tensors::PackedBatch mask_tokens(tensors::PackedBatch batch, const TokenMasking& masking, const PhiloxKey& key) {
  const auto* const offsets = batch.offsets.const_data_ptr<int32_t>();
  std::vector<Candidate> masked;
  std::vector<Candidate> of_sequence;
  for (int64_t s = 0; s < batch.num_sequences(); ++s) {
    const int64_t count = masking.num_masked(offsets[s + 1] - offsets[s]);
    if (count == 0) continue;
    of_sequence.clear();
    for (int64_t t = offsets[s] + 1; t + 1 < offsets[s + 1]; ++t) of_sequence.push_back(candidate(batch, t, key));
    std::ranges::nth_element(of_sequence, of_sequence.begin() + (count - 1), std::less());
    of_sequence.resize(static_cast<size_t>(count));
    std::ranges::sort(of_sequence, {}, &Candidate::token);
    masked.insert(masked.end(), of_sequence.begin(), of_sequence.end());
  }
  batch.input_ids = batch.input_ids.clone();
  batch.masked = at::empty({std::ssize(masked)}, at::kLong);
  batch.targets = at::empty({std::ssize(masked)}, at::kInt);
  auto* const ids = batch.input_ids.mutable_data_ptr<int32_t>();
  auto* place = batch.masked.mutable_data_ptr<int64_t>();
  auto* target = batch.targets.mutable_data_ptr<int32_t>();
  for (const Candidate& one : masked) {
    *place++ = one.token;
    *target++ = ids[one.token];
    ids[one.token] = id_instead(one, ids[one.token], masking);
  }
  return batch;
}

}  // namespace strake::models
