#include "strake/kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "strake/core/error.h"
#include "strake/kernels/keep_rule.h"
#include "strake/kernels/scratch.h"
#include "strake/kernels/test_values.h"

namespace strake::kernels::attention_test {
namespace {

// A packed batch with q, k, v in one fused buffer and its gradients in another.
struct Case {
  std::vector<int32_t> lengths;
  int64_t heads;
  int64_t head_dim;
  AttentionMask mask = AttentionMask::kFull;
  float p = 0;
};

std::string name(const Case& c, Isa isa) {
  return std::string(to_string(isa)) + " sequences=" + std::to_string(c.lengths.size()) +
         " first length=" + std::to_string(c.lengths.front()) + " head_dim=" + std::to_string(c.head_dim) +
         (c.mask == AttentionMask::kCausal ? " causal" : "") + " p=" + std::to_string(c.p);
}

struct Batch {
  explicit Batch(const Case& c) : config(c), index(c.lengths), offsets{0} {
    for (const int32_t length : c.lengths) offsets.push_back(offsets.back() + length);
    tokens = offsets.back();
    width = c.heads * c.head_dim;
    shape = {.offsets = offsets.data(),
             .num_sequences = static_cast<int64_t>(c.lengths.size()),
             .num_heads = c.heads,
             .head_dim = c.head_dim,
             .scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim)),
             .mask = c.mask,
             .dropout = {.key = philox_key(3, 4), .site = 77, .p = c.p},
             .index = index.index()};
  }
  Case config;
  TestIndex index;
  std::vector<int32_t> offsets;
  int64_t tokens;
  int64_t width;
  AttentionShape shape;
};

template <typename T>
struct Result {
  std::vector<T> out;
  std::vector<float> lse;
  std::vector<T> grad;
};

constexpr int64_t kGap = 5;  // strides larger than the rows

template <typename T>
Result<T> run(const Batch& b, const std::vector<T>& qkv, const std::vector<T>& dout, Isa isa) {
  Result<T> r{std::vector<T>(static_cast<size_t>(b.tokens * (b.width + kGap))),
              std::vector<float>(static_cast<size_t>(b.tokens * b.config.heads)), std::vector<T>(qkv.size())};
  const int64_t stride = 3 * b.width + kGap;
  attention_forward<T>({.shape = b.shape,
                        .q = qkv.data(),
                        .k = qkv.data() + b.width,
                        .v = qkv.data() + 2 * b.width,
                        .qkv_stride = stride,
                        .out = r.out.data(),
                        .out_stride = b.width + kGap,
                        .lse = r.lse.data()},
                       isa);
  attention_backward<T>({.shape = b.shape,
                         .q = qkv.data(),
                         .k = qkv.data() + b.width,
                         .v = qkv.data() + 2 * b.width,
                         .qkv_stride = stride,
                         .out = r.out.data(),
                         .dout = dout.data(),
                         .out_stride = b.width + kGap,
                         .lse = r.lse.data(),
                         .dq = r.grad.data(),
                         .dk = r.grad.data() + b.width,
                         .dv = r.grad.data() + 2 * b.width,
                         .grad_stride = stride},
                        isa);
  return r;
}

template <typename T>
std::vector<T> random_qkv(const Batch& b) {
  return random_values<T>(b.tokens * (3 * b.width + kGap), 11);
}
template <typename T>
std::vector<T> random_dout(const Batch& b) {
  return random_values<T>(b.tokens * (b.width + kGap), 12);
}

struct Keys {
  const double* qkv;  // of all tokens
  int64_t head;
  int64_t begin, end;  // tokens
};

// The formula, in double, for one query; `row` was 0.
void add_formula(const Batch& b, const Keys& keys, int64_t query, double* row) {
  const KeepRule keep = keep_rule(b.shape.dropout, b.shape.index);
  const auto at = [&](int64_t token, int64_t part) {
    return keys.qkv + token * (3 * b.width + kGap) + part * b.width + keys.head * b.shape.head_dim;
  };
  double sum = 0;
  for (int64_t key = keys.begin; key < keys.end; ++key) {
    const double score = std::inner_product(at(query, 0), at(query, 0) + b.shape.head_dim, at(key, 1), 0.0);
    const double p = std::exp(double{b.shape.scale} * score);
    sum += p;
    const double factor = keep_factor(keep, query, (keys.head << 20) + key - keys.begin);
    for (int64_t d = 0; d < b.shape.head_dim; ++d) row[d] += factor * p * at(key, 2)[d];
  }
  for (int64_t d = 0; d < b.shape.head_dim; ++d) row[d] /= sum;
}

// Gaps are 0 as in Result.
std::vector<double> formula(const Batch& b, const std::vector<double>& qkv) {
  std::vector<double> out(static_cast<size_t>(b.tokens * (b.width + kGap)));
  for (size_t s = 0; s + 1 < b.offsets.size(); ++s) {
    for (int64_t head = 0; head < b.shape.num_heads; ++head) {
      for (int64_t i = b.offsets[s]; i < b.offsets[s + 1]; ++i) {
        const int64_t end = b.shape.mask == AttentionMask::kCausal ? i + 1 : b.offsets[s + 1];
        add_formula(b, {qkv.data(), head, b.offsets[s], end}, i,
                    out.data() + i * (b.width + kGap) + head * b.shape.head_dim);
      }
    }
  }
  return out;
}

std::vector<double> with_positive_values(const Batch& b, std::vector<double> qkv) {
  for (int64_t token = 0; token < b.tokens; ++token) {
    double* const values = qkv.data() + token * (3 * b.width + kGap) + 2 * b.width;
    for (int64_t i = 0; i < b.width; ++i) values[i] = std::abs(values[i]);
  }
  return qkv;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases{
      {{1}, 1, 64},
      {{27, 1, 13, 40}, 3, 64},
      {{5, 33, 1, 1, 64, 70}, 2, 32, AttentionMask::kFull, 0.1F},
      {{31, 17, 2, 97}, 2, 20, AttentionMask::kCausal, 0.25F},
      {{3, 16, 130}, 1, 7, AttentionMask::kCausal},
      {{9, 200, 0, 4}, 2, 80, AttentionMask::kFull, 0.5F},
      {std::vector<int32_t>(50, 6), 4, 16, AttentionMask::kFull, 0.1F},
  };
  return kCases;
}

template <typename T>
class Attention : public ::testing::Test {};
TYPED_TEST_SUITE(Attention, StorageTypes);

template <typename T>
std::vector<Isa> rungs() {
  if (!std::is_same_v<T, BFloat16>) return usable_rungs();
  return usable_rungs_and({Isa::kAmx});
}

// Tiles multiply values by probabilities that are rounded to bf16, each once.
template <typename T>
double probability_rounding(Isa isa) {
  return std::is_same_v<T, BFloat16> && isa >= Isa::kAvx512Bf16 ? kRounding<BFloat16> : 0.0;
}

TYPED_TEST(Attention, ForwardIsTheFormulaInEveryRung) {
  for (const Case& c : cases()) {
    const Batch b(c);
    const auto qkv = random_qkv<TypeParam>(b);
    const std::vector<double> want = formula(b, doubles(qkv));
    const std::vector<double> magnitudes = formula(b, with_positive_values(b, doubles(qkv)));
    for (const Isa isa : rungs<TypeParam>()) {
      const std::vector<TypeParam> got = run(b, qkv, random_dout<TypeParam>(b), isa).out;
      int wrong = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        // fp32 scores of size up to 5 err by 1e-6, which is the relative error of a probability; then one store.
        const double allowed =
            4e-6 + kRounding<TypeParam> * std::abs(want[i]) + probability_rounding<TypeParam>(isa) * magnitudes[i];
        if (!(std::abs(to_float(got[i]) - want[i]) <= allowed)) ++wrong;
      }
      EXPECT_EQ(wrong, 0) << name(c, isa);
    }
  }
}

TEST(AttentionGradient, IsTheSlopeOfTheFormulaInEveryRung) {
  for (const Case& c : std::vector<Case>{{{5, 1, 3}, 2, 6},
                                         {{7, 2}, 1, 20, AttentionMask::kCausal, 0.3F},
                                         {{20}, 1, 16, AttentionMask::kFull, 0.1F}}) {
    const Batch b(c);
    const auto qkv = random_qkv<float>(b);
    const auto dout = random_dout<float>(b);
    const std::vector<double> weights = doubles(dout);
    std::vector<double> x = doubles(qkv);
    const auto loss = [&] {
      const std::vector<double> out = formula(b, x);
      return std::inner_product(out.begin(), out.end(), weights.begin(), 0.0);
    };
    std::vector<double> want(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      constexpr double kStep = 1e-5;  // error of central differences: step^2 plus 1e-16 / step
      const double before = x[i];
      x[i] = before + kStep;
      const double above = loss();
      x[i] = before - kStep;
      want[i] = (above - loss()) / (2 * kStep);
      x[i] = before;
    }
    for (const Isa isa : usable_rungs()) {
      expect_close(run(b, qkv, dout, isa).grad, want, 2e-5, 1e-6, name(c, isa));  // fp32 sums of about 20 terms
    }
  }
}

TYPED_TEST(Attention, BackwardAgreesWithTheReferenceInEveryRung) {
  for (const Case& c : cases()) {
    const Batch b(c);
    const auto qkv = random_qkv<TypeParam>(b);
    const auto dout = random_dout<TypeParam>(b);
    const Result<TypeParam> want = run(b, qkv, dout, Isa::kReference);
    for (const Isa isa : rungs<TypeParam>()) {
      const Result<TypeParam> got = run(b, qkv, dout, isa);
      expect_close(got.lse, doubles(want.lse), 2e-6, 1e-6, name(c, isa));
      // BFloat16: `out` of the two may differ by one rounding, which the dot product with dout carries into dS.
      const double absolute = std::is_same_v<TypeParam, float> ? 2e-5 : 2e-2;
      expect_close(got.grad, doubles(want.grad), absolute, 2 * kRounding<TypeParam>, name(c, isa));
    }
  }
}

TYPED_TEST(Attention, AgreesWithTheReferenceOnALongSequence) {
  for (const AttentionMask mask : {AttentionMask::kFull, AttentionMask::kCausal}) {
    const Batch b({{600, 3}, 1, 32, mask, 0.1F});
    const auto qkv = random_qkv<TypeParam>(b);
    const auto dout = random_dout<TypeParam>(b);
    const Result<TypeParam> want = run(b, qkv, dout, Isa::kReference);
    for (const Isa isa : rungs<TypeParam>()) {
      const Result<TypeParam> got = run(b, qkv, dout, isa);
      // Sums of 600 terms in another order, and for BFloat16 one rounding.
      const double absolute = std::is_same_v<TypeParam, float> ? 5e-5 : 2e-2;
      expect_close(got.out, doubles(want.out), absolute, 2 * kRounding<TypeParam>, name(b.config, isa));
      expect_close(got.grad, doubles(want.grad), absolute, 2 * kRounding<TypeParam>, name(b.config, isa));
    }
  }
}

// With equal scores and one-hot values, out[i][j] is the dropout factor of query i and key j over the length.
TYPED_TEST(Attention, DropsExactlyWhatTheDefinitionSaysInEveryRung) {
  for (int32_t length = 1; length <= 150; length += length < 20 ? 1 : 11) {
    const Batch b({{2, length}, 3, length, AttentionMask::kFull, 0.3F});
    std::vector<TypeParam> qkv(static_cast<size_t>(b.tokens * (3 * b.width + kGap)), from_float<TypeParam>(0.0F));
    for (int64_t token = 2; token < b.tokens; ++token) {
      for (int64_t head = 0; head < 3; ++head) {
        qkv[static_cast<size_t>(token * (3 * b.width + kGap) + 2 * b.width + head * length + token - 2)] =
            from_float<TypeParam>(1.0F);
      }
    }
    const KeepRule keep = keep_rule(b.shape.dropout, b.shape.index);
    for (const Isa isa : rungs<TypeParam>()) {
      const std::vector<TypeParam> out = run(b, qkv, random_dout<TypeParam>(b), isa).out;
      int wrong = 0;
      const int64_t heads_keys = int64_t{3} * length;
      for (int64_t n = 2 * heads_keys; n < b.tokens * heads_keys; ++n) {
        const int64_t key = n % length;
        const int64_t head = n / length % 3;
        const int64_t query = n / heads_keys;
        const float value = to_float(out[static_cast<size_t>(query * (b.width + kGap) + head * length + key)]);
        wrong += (value != 0.0F) != keeps(keep, query, (head << 20) + key) ? 1 : 0;
      }
      EXPECT_EQ(wrong, 0) << to_string(isa) << " length " << length;
    }
  }
}

TYPED_TEST(Attention, HasTheSameBitsForAnyNumberOfThreads) {
  const Batch b({{27, 1, 90, 13, 40, 5, 5, 33}, 3, 32, AttentionMask::kFull, 0.1F});
  const auto qkv = random_qkv<TypeParam>(b);
  const auto dout = random_dout<TypeParam>(b);
  for (const Isa isa : rungs<TypeParam>()) {
    const WithThreads one(1);
    const Result<TypeParam> want = run(b, qkv, dout, isa);
    for (const int threads : {2, 3, 7}) {
      const WithThreads several(threads);
      const Result<TypeParam> got = run(b, qkv, dout, isa);
      EXPECT_TRUE(same_bits(got.out, want.out) && same_bits(got.grad, want.grad) && same_bits(got.lse, want.lse))
          << to_string(isa) << " with " << threads << " threads";
    }
  }
}

TYPED_TEST(Attention, OnOneThreadHasTheSameBitsAndStaysWithinItsScratch) {
  constexpr float kUntouched = -12345.0F;
  for (const Case& c : cases()) {
    const Batch b(c);
    const auto qkv = random_qkv<TypeParam>(b);
    for (const Isa isa : rungs<TypeParam>()) {
      const Result<TypeParam> want = run(b, qkv, random_dout<TypeParam>(b), isa);
      std::vector<TypeParam> out(want.out.size());
      std::vector<float> lse(want.lse.size());
      const int64_t floats = attention_forward_scratch<TypeParam>(std::ranges::max(c.lengths), c.head_dim, isa);
      AlignedFloats scratch(floats + 64);
      std::fill_n(scratch.data(), floats + 64, kUntouched);
      attention_forward_on_thread<TypeParam>({.shape = b.shape,
                                              .q = qkv.data(),
                                              .k = qkv.data() + b.width,
                                              .v = qkv.data() + 2 * b.width,
                                              .qkv_stride = 3 * b.width + kGap,
                                              .out = out.data(),
                                              .out_stride = b.width + kGap,
                                              .lse = lse.data()},
                                             scratch.data(), isa);
      EXPECT_TRUE(same_bits(out, want.out) && same_bits(lse, want.lse)) << name(c, isa);
      EXPECT_TRUE(std::all_of(scratch.data() + floats, scratch.data() + floats + 64, [](float value) {
        return value == kUntouched;
      })) << name(c, isa);
    }
  }
}

TYPED_TEST(Attention, WithNanFillsItsSequenceAndNoOther) {
  const Batch b({{20, 33, 8}, 2, 32});
  const auto dout = random_dout<TypeParam>(b);
  for (const Isa isa : rungs<TypeParam>()) {
    auto qkv = random_qkv<TypeParam>(b);
    const Result<TypeParam> clean = run(b, qkv, dout, isa);
    qkv[static_cast<size_t>(25 * (3 * b.width + kGap) + b.width)] =
        from_float<TypeParam>(std::numeric_limits<float>::quiet_NaN());  // a key
    const Result<TypeParam> got = run(b, qkv, dout, isa);
    for (int64_t token = 0; token < b.tokens; ++token) {
      const auto out = static_cast<size_t>(token * (b.width + kGap));
      const auto grad = static_cast<size_t>(token * (3 * b.width + kGap));
      if (token >= 20 && token < 53) {
        EXPECT_TRUE(std::isnan(to_float(got.out[out])) && std::isnan(to_float(got.grad[grad])))
            << to_string(isa) << " token " << token;
      } else {
        EXPECT_EQ(to_float(got.out[out]), to_float(clean.out[out])) << to_string(isa) << " token " << token;
        EXPECT_EQ(to_float(got.grad[grad]), to_float(clean.grad[grad])) << to_string(isa) << " token " << token;
      }
    }
  }
}

TYPED_TEST(Attention, WithInfinityInAScoreGivesNanNotAWrongNumber) {
  const Batch b({{20}, 1, 32});
  for (const Isa isa : rungs<TypeParam>()) {
    auto qkv = random_qkv<TypeParam>(b);
    qkv[static_cast<size_t>(b.width)] =
        from_float<TypeParam>(std::numeric_limits<float>::infinity());  // first element of the first key
    const Result<TypeParam> got = run(b, qkv, random_dout<TypeParam>(b), isa);
    for (int64_t token = 0; token < b.tokens; ++token) {  // +inf wins the softmax as inf - inf; -inf has no weight
      const bool positive = to_float(qkv[static_cast<size_t>(token * (3 * b.width + kGap))]) > 0;
      EXPECT_EQ(std::isnan(to_float(got.out[static_cast<size_t>(token * (b.width + kGap))])), positive)
          << to_string(isa);
    }
  }
}

// Each query takes the key of its largest score, as good as alone.
TYPED_TEST(Attention, OfHugeScoresIsTheValueOfTheLargest) {
  const Batch b({{20, 37}, 1, 32});
  for (const float size : {1e4F, 1e7F, 1e11F}) {
    if (std::is_same_v<TypeParam, Half> && size > 1e4F) continue;  // it has none
    auto qkv = random_qkv<TypeParam>(b);
    for (int64_t token = 0; token < b.tokens; ++token) {
      for (int64_t i = 0; i < b.width; ++i) {
        TypeParam& q = qkv[static_cast<size_t>(token * (3 * b.width + kGap) + i)];
        q = from_float<TypeParam>(to_float(q) * size);
      }
    }
    const auto dout = random_dout<TypeParam>(b);
    const Result<TypeParam> want = run(b, qkv, dout, Isa::kReference);
    for (const Isa isa : rungs<TypeParam>()) {
      const Result<TypeParam> got = run(b, qkv, dout, isa);
      for (size_t i = 0; i < want.out.size(); ++i) {
        // Sums of products of this size differ by more than 1 where keys are near each other: a tenth of the values.
        ASSERT_NEAR(to_float(got.out[i]), to_float(want.out[i]), 0.2F) << to_string(isa) << " " << size << " " << i;
      }
    }
  }
}

TEST(AttentionShapes, ThatMakeNoSenseAreRefused) {
  const std::vector<int32_t> offsets{0, 5, 3};
  const AttentionForward<float> args{
      .shape = {.offsets = offsets.data(), .num_sequences = 2, .num_heads = 1, .head_dim = 8}};
  EXPECT_THROW(attention_forward(args), Error);
  AttentionForward<float> no_heads = args;
  no_heads.shape.num_heads = 0;
  EXPECT_THROW(attention_forward(no_heads), Error);
}

}  // namespace
}  // namespace strake::kernels::attention_test
