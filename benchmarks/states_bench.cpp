// What an optimizer step costs in memory and on disk: states_bench WHAT [FOLDER]
//   adam           124.6 M parameters in one flat fp32 buffer, in memory: AdamW
//   adam_step      the same with the gradient's norm, clipping, the bf16 copy and the reset of the gradient
//   disk           states of 64 M parameters in FOLDER: all bytes read and written once, nothing computed, by threads
//                  with plain pread and pwrite
//   adam_threads   the same states updated by AdamW, moved by threads; adam_io_uring by io_uring
// Prints one JSON object: seconds (the median of several passes) and rate, in GB/s: 28 bytes a parameter in memory, 24
// on disk (weight and two moments, read and written).
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "strake/core/clock.h"
#include "strake/core/error.h"
#include "strake/core/memory.h"
#include "strake/kernels/global_norm.h"
#include "strake/kernels/optimizer_pass.h"
#include "strake/tensors/tracked_memory.h"
#include "strake/training/offloaded_states.h"

namespace strake {
namespace {

constexpr int64_t kInMemory = 124'647'424;  // of the RoBERTa-base shape
constexpr int64_t kOnDisk = int64_t{64} << 20;
constexpr int64_t kBlock = int64_t{4} << 20;  // elements of a block on disk
constexpr int kArrays = 3;
constexpr int kTransfers = 8;  // at once

struct Flat {
  explicit Flat(int64_t count)
      : parameters(at::ones({count})),
        gradients(at::ones({count})),
        first(at::zeros({count})),
        second(at::zeros({count})),
        rounded(at::empty({count}, at::kBFloat16)) {}
  at::Tensor parameters, gradients, first, second, rounded;
};

double median_seconds(int passes, const std::function<void(int)>& pass) {
  pass(1);
  std::vector<double> seconds;
  for (int i = 0; i < passes; ++i) {
    const auto start = Clock::now();
    pass(i + 2);
    seconds.push_back(seconds_since(start));
  }
  std::ranges::nth_element(seconds, seconds.begin() + passes / 2);
  return seconds[static_cast<size_t>(passes / 2)];
}

void print(std::string_view what, double seconds, double bytes) {
  fmt::print("{{\"what\": \"{}\", \"seconds\": {:.6f}, \"tokens\": 0, \"rate\": {:.3f}}}\n", what, seconds,
             bytes * 1e-9 / seconds);
}

void measure_memory(std::string_view what) {
  const bool whole_step = what == "adam_step";
  Flat flat(kInMemory);
  const std::vector<kernels::TensorSegment> segments{{0, kInMemory, 0.01}};
  std::vector<double> partial(static_cast<size_t>(kernels::num_squares_chunks(kInMemory)));
  const double seconds = median_seconds(9, [&](int number) {
    kernels::FlatWindow window{.parameters = flat.parameters.mutable_data_ptr<float>(),
                               .gradients = flat.gradients.mutable_data_ptr<float>(),
                               .states = {flat.first.mutable_data_ptr<float>(), flat.second.mutable_data_ptr<float>()},
                               .count = kInMemory,
                               .segments = segments};
    kernels::UpdateStep step{.learning_rate = 1e-3, .number = number};
    if (whole_step) {
      kernels::sum_of_squares(flat.gradients.const_data_ptr<float>(), kInMemory, partial);
      const double norm = std::sqrt(kernels::add_in_order(partial));
      window.rounded = static_cast<kernels::BFloat16*>(flat.rounded.mutable_data_ptr());
      step.gradient_scale = static_cast<float>(std::min(1.0, 1.0 / (norm + 1e-6)));
      step.gradients = kernels::AfterUse::kZero;
    }
    kernels::adam(window, step, {});
  });
  print(what, seconds, 28.0 * kInMemory);
}

// Every byte of the file once in and once out, past the page cache: as many plain transfers at once as strake has, by
// way of as much memory, and in the order of such a pass, which writes what it has read a while ago.
void measure_disk(const std::string& folder) {
  constexpr size_t kPiece = size_t{1} << 20;
  constexpr size_t kPieces = kOnDisk * kArrays * sizeof(float) / kPiece;
  constexpr size_t kWindow = size_t{4} * kArrays;  // pieces: 1 Mi elements of each array
  constexpr size_t kInMemory = 4 * kWindow;
  const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_DIRECT, 0600);
  require(file >= 0 && ::posix_fallocate(file, 0, kPieces * kPiece) == 0, ErrorKind::kIo, "no room in {}", folder);
  const AlignedBytes memory = allocate_aligned(kInMemory * kPiece);
  std::ranges::fill(std::span(memory.get(), kInMemory * kPiece), std::byte{1});
  const auto move = [&](size_t transfer) {
    const size_t read = transfer / 2;
    const bool is_read = transfer % 2 == 0;
    const size_t piece = is_read ? read : (read + kPieces - 2 * kWindow) % kPieces;
    std::byte* const place = memory.get() + piece % kInMemory * kPiece;
    const auto offset = static_cast<off_t>(piece * kPiece);
    const ssize_t moved = is_read ? ::pread(file, place, kPiece, offset) : ::pwrite(file, place, kPiece, offset);
    require(moved == kPiece, ErrorKind::kIo, "transfer at {} failed", offset);
  };
  const double seconds = median_seconds(5, [&](int) {
    std::atomic<size_t> next{0};
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < kTransfers; ++i) {
      threads.emplace_back([&] {
        for (size_t transfer = next++; transfer < 2 * kPieces; transfer = next++) move(transfer);
      });
    }
  });
  ::close(file);
  print("disk", seconds, 2.0 * kPieces * kPiece);
}

void measure_offload(std::string_view what, const std::string& folder) {
  const auto engine = what == "adam_threads" ? ScratchFile::Engine::kThreads : ScratchFile::Engine::kIoUring;
  const std::vector<int64_t> counts(kOnDisk / kBlock, kBlock);
  training::OffloadedStates states(counts, {kArrays, at::kFloat},
                                   {.folder = folder, .file = {.depth = kTransfers, .engine = engine}});
  at::Tensor gradients = at::ones({kBlock});
  const std::vector<kernels::TensorSegment> segments{{0, kBlock, 0.01}};
  const double seconds = median_seconds(5, [&](int number) {
    states.update_all([&](const training::OffloadedStates::Window& window, std::span<void* const> arrays) {
      const kernels::FlatWindow flat{.parameters = static_cast<float*>(arrays[0]),
                                     .gradients = gradients.mutable_data_ptr<float>() + window.begin,
                                     .states = {static_cast<float*>(arrays[1]), static_cast<float*>(arrays[2])},
                                     .begin = window.begin,
                                     .count = window.count,
                                     .segments = segments};
      kernels::adam(flat, {.learning_rate = 1e-3, .number = number}, {});
    });
  });
  print(what, seconds, 24.0 * kOnDisk);
}

}  // namespace
}  // namespace strake

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  const std::string folder = argc > 2 ? argv[2] : ".";
  strake::keep_freed_memory();  // memory as a training run has it
  strake::tensors::track_tensor_memory();
  if (what == "adam" || what == "adam_step") {
    strake::measure_memory(what);
  } else if (what == "disk") {
    strake::measure_disk(folder);
  } else if (what == "adam_threads" || what == "adam_io_uring") {
    strake::measure_offload(what, folder);
  } else {
    fmt::print(stderr, "usage: states_bench adam|adam_step|disk|adam_threads|adam_io_uring [FOLDER]\n");
    return 2;
  }
}
