#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <variant>

#include "strake/kernels/bfloat16.h"
#include "strake/kernels/half.h"

// What every optimizer kernel updates: a window of a flat buffer with its gradient and optimizer state. Cutting a
// buffer into windows in another way gives the same bits.
namespace strake::kernels {

// Elements [begin, end) of a flat buffer are one tensor.
struct TensorSegment {
  int64_t begin = 0;
  int64_t end = 0;
  double weight_decay = 0;
};

enum class AfterUse { kKeep, kZero };  // what becomes of the gradient

// Elements [begin, begin + count) of a flat buffer; all pointers are to the window's first element. Parameters and
// states are fp32; or all bf16; or, for Adam, parameters are fp16 and states fp32. With parameters of 16 bits gradients
// are of the parameters' type. Each value is read, computed with in fp32, and rounded to nearest even where it is
// stored. An update of less than half a unit in a parameter's last place (2^-9 to 2^-8 of it in bf16, 2^-12 to 2^-11 in
// fp16) is lost.
struct FlatWindow {
  std::variant<float*, BFloat16*, Half*> parameters;           // [count]: masters
  std::variant<float*, BFloat16*, Half*> gradients;            // [count]: overwritten only under AfterUse::kZero
  std::array<std::variant<float*, BFloat16*>, 3> states = {};  // [count] each: as many as the rule has
  // [count]: the parameters rounded, which also receives the new ones.
  std::variant<std::monostate, BFloat16*, Half*> rounded = {};
  int64_t begin = 0;
  int64_t count = 0;
  // Ascending, disjoint, in elements of the flat buffer. Elements in none have no weight decay.
  std::span<const TensorSegment> segments = {};
};

// What is the same for all windows of one optimizer step.
struct UpdateStep {
  double learning_rate = 0;  // of this step, after the schedule
  int64_t number = 1;        // 1 for the first
  float gradient_scale = 1;  // the rules see gradient_scale * gradients: clipping and loss scaling
  AfterUse gradients = AfterUse::kKeep;
};

}  // namespace strake::kernels
