#include "strake/kernels/cuda/emulation/emulation.h"

#include <ucontext.h>

#include <memory>
#include <stdexcept>
#include <vector>

namespace strake::kernels::cuda::emulation {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
constexpr unsigned kWarp = 32;
constexpr unsigned kMostBlocksInY = 65535;

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<char[]> stack;
  Index3 thread;
  bool is_done = false;
};

// Threads that wait for each other: those of a block or of a warp.
struct Barrier {
  unsigned arrived = 0;
  uint64_t generation = 0;
};

struct Block {
  Index3 grid, block, size;
  const std::function<void()>* body = nullptr;
  std::vector<Fiber> fibers;
  Barrier barrier;
  std::vector<Barrier> warps;
  std::vector<WarpPointers> shared;  // by warp
  ucontext_t scheduler{};
  Fiber* running = nullptr;
  uint64_t progress = 0;  // counts arrivals and ends: none in a whole round is a deadlock
  Order order = Order::kUp;
};

// Kernels call free functions without an argument that could carry it.
Block current;

void give_way() { swapcontext(&current.running->context, &current.scheduler); }

void wait_at(Barrier& barrier, unsigned members) {
  ++current.progress;
  const uint64_t generation = barrier.generation;
  if (++barrier.arrived == members) {
    barrier.arrived = 0;
    ++barrier.generation;
  }
  while (barrier.generation == generation) give_way();
}

void run_fiber() {
  (*current.body)();
  current.running->is_done = true;
  ++current.progress;
  give_way();
}

void start(Fiber& fiber) {
  fiber.is_done = false;
  if (!fiber.stack) fiber.stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, &run_fiber, 0);
}

void run_block() {
  const size_t count = current.size.x;
  for (size_t i = 0; i < count; ++i) start(current.fibers[i]);
  size_t alive = count;
  while (alive > 0) {
    const uint64_t before = current.progress;
    for (size_t n = 0; n < count; ++n) {
      Fiber& fiber = current.fibers[current.order == Order::kUp ? n : count - 1 - n];
      if (fiber.is_done) continue;
      current.running = &fiber;
      swapcontext(&current.scheduler, &fiber.context);
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
