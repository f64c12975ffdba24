#include "strake/kernels/cuda/emulation/emulation.h"

#include <ucontext.h>

#include <csetjmp>
#include <memory>
#include <stdexcept>
#include <vector>

namespace strake::kernels::cuda::emulation {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
constexpr unsigned kWarp = 32;
constexpr unsigned kMostBlocksInY = 65535;

// Threads that wait for each other: those of a block or of a warp.
struct Barrier {
  unsigned arrived = 0;
  uint64_t generation = 0;
};

struct Fiber {
  ucontext_t beginning{};
  std::jmp_buf place{};
  std::unique_ptr<char[]> stack;
  Index3 thread;
  bool has_begun = false;
  bool is_done = false;
  const Barrier* waits_at = nullptr;
  uint64_t waits_for = 0;  // a generation

  bool can_go_on() const { return !is_done && (waits_at == nullptr || waits_at->generation >= waits_for); }
};

struct Block {
  Index3 grid, block, size;
  const std::function<void()>* body = nullptr;
  std::vector<Fiber> fibers;
  Barrier barrier;
  std::vector<Barrier> warps;
  std::vector<WarpPointers> shared;  // by warp
  std::jmp_buf scheduler{};
  Fiber* running = nullptr;
  uint64_t progress = 0;  // counts arrivals and ends: none in a whole round is a deadlock
  Order order = Order::kUp;
};

// Kernels call free functions without an argument that could carry it.
Block current;

// A fiber begins with setcontext() and goes on with longjmp(), as swapcontext() asks the system for signals each time,
// which takes most of an emulated kernel. A function that calls setjmp() has no variables that could be lost.
[[gnu::noinline]] void give_way() {
  if (_setjmp(current.running->place) == 0) _longjmp(current.scheduler, 1);
}
[[gnu::noinline]] void go_on(Fiber& fiber) {
  current.running = &fiber;
  if (_setjmp(current.scheduler) != 0) return;
  if (current.running->has_begun) _longjmp(current.running->place, 1);
  current.running->has_begun = true;
  setcontext(&current.running->beginning);
}

void wait_at(Barrier& barrier, unsigned members) {
  ++current.progress;
  if (++barrier.arrived == members) {
    barrier.arrived = 0;
    ++barrier.generation;
    return;
  }
  current.running->waits_at = &barrier;
  current.running->waits_for = barrier.generation + 1;
  give_way();
}

void run_fiber() {
  (*current.body)();
  current.running->is_done = true;
  ++current.progress;
  give_way();
}

void start(Fiber& fiber) {
  fiber.has_begun = fiber.is_done = false;
  fiber.waits_at = nullptr;
  if (!fiber.stack) fiber.stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
  getcontext(&fiber.beginning);
  fiber.beginning.uc_stack.ss_sp = fiber.stack.get();
  fiber.beginning.uc_stack.ss_size = kStackBytes;
  fiber.beginning.uc_link = nullptr;
  makecontext(&fiber.beginning, &run_fiber, 0);
}

void run_block() {
  const size_t count = current.size.x;
  for (size_t i = 0; i < count; ++i) start(current.fibers[i]);
  size_t alive = count;
  while (alive > 0) {
    const uint64_t before = current.progress;
    for (size_t n = 0; n < count; ++n) {
      Fiber& fiber = current.fibers[current.order == Order::kUp ? n : count - 1 - n];
      if (!fiber.can_go_on()) continue;
      go_on(fiber);
      if (fiber.is_done) --alive;
    }
    if (current.progress == before) {
      throw std::logic_error("emulated CUDA block: threads wait for others that never come");
    }
  }
}

}  // namespace

void set_order(Order order) { current.order = order; }

void run(Index3 grid, unsigned threads, const std::function<void()>& body) {
  if (grid.y > kMostBlocksInY) throw std::logic_error("an emulated CUDA grid is too large");
  if (threads % kWarp != 0) {
    throw std::logic_error("emulated CUDA blocks are whole warps");
  }
  current.grid = grid;
  current.size = {threads, 1, 1};
  current.body = &body;
  if (current.fibers.size() < threads) current.fibers.resize(threads);
  for (unsigned i = 0; i < threads; ++i) current.fibers[i].thread = {i, 0, 0};
  current.warps.assign(threads / kWarp, {});
  current.shared.assign(threads / kWarp, {});
  current.barrier = {};
  for (current.block.y = 0; current.block.y < grid.y; ++current.block.y) {
    for (current.block.x = 0; current.block.x < grid.x; ++current.block.x) run_block();
  }
}

const Index3& thread_index() { return current.running->thread; }
const Index3& block_index() { return current.block; }
const Index3& block_size() { return current.size; }
const Index3& grid_size() { return current.grid; }
unsigned lane() { return current.running->thread.x % kWarp; }

void block_barrier() { wait_at(current.barrier, current.size.x); }
void warp_barrier() { wait_at(current.warps[current.running->thread.x / kWarp], kWarp); }

WarpPointers share_pointer(const void* pointer) {
  WarpPointers& pointers = current.shared[current.running->thread.x / kWarp];
  pointers[lane()] = pointer;
  warp_barrier();
  return pointers;
}

}  // namespace strake::kernels::cuda::emulation
