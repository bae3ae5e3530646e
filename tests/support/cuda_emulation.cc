#include "tests/support/cuda_emulation.h"

#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace clover::kernels::cuda::emulation {
namespace {

constexpr size_t stack_bytes = 128 << 10;
constexpr int lanes = 32;

enum class State { ready, at_collective, at_barrier, done };

struct Copy {
  void* to;
  const void* from;
  bool zeros;
};

// GCC's own: the library's is a system call under the address sanitizer.
using JumpPoint = void* [5];

[[noreturn]] __attribute__((noinline)) void jump(JumpPoint& to) {
  __builtin_longjmp(to, 1);
}

struct Fiber {
  std::unique_ptr<unsigned char[]> stack{new unsigned char[stack_bytes]};
  ucontext_t first_entry;
  JumpPoint resume;
  bool started = false;
  State state = State::done;
  Place place;
  unsigned collectives = 0;
  bool waited = false;                    // for the last kernel
  std::vector<std::vector<Copy>> copies;  // by group, the last one open
};

// What the lanes of a warp bring to a collective; two, for a lane may be at the next one already.
struct Warp {
  unsigned char brought[2][lanes * 64];
};

std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<Warp> warps;
std::vector<unsigned char> shared;
const std::function<void()>* thread_body;
Fiber* running;
JumpPoint scheduler;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "CUDA emulation: block %u,%u,%u thread %u: %s\n", running->place.block.x,
               running->place.block.y, running->place.block.z, running->place.thread.x, what);
  std::abort();
}

void pause(State state) {
  running->state = state;
  if (__builtin_setjmp(running->resume) == 0) jump(scheduler);
}

void fiber_main() {
  for (;;) {
    (*thread_body)();
    if (!running->waited) fail("a thread ends that has not waited for the last kernel");
    pause(State::done);
  }
}

void resume(Fiber& fiber) {
  running = &fiber;
  if (__builtin_setjmp(scheduler) != 0) return;
  if (fiber.started) jump(fiber.resume);
  fiber.started = true;
  ::getcontext(&fiber.first_entry);
  fiber.first_entry.uc_stack.ss_sp = fiber.stack.get();
  fiber.first_entry.uc_stack.ss_size = stack_bytes;
  fiber.first_entry.uc_link = nullptr;
  ::makecontext(&fiber.first_entry, fiber_main, 0);
  ::setcontext(&fiber.first_entry);
}

/// Until every lane of the warp waits for the block or is done.
void run_warp(int first, int count) {
  for (;;) {
    int together = 0;
    for (int i = 0; i < count; ++i) {
      Fiber& fiber = *fibers[first + i];
      if (fiber.state == State::ready) resume(fiber);
      together += fiber.state == State::at_collective;
    }
    if (together == 0) return;
    if (together != lanes) fail("the lanes of a warp part at a collective");
    for (int i = 0; i < count; ++i) fibers[first + i]->state = State::ready;
  }
}

void run_block(int threads, unsigned turn) {
  const int count = (threads + lanes - 1) / lanes;
  for (unsigned round = turn;; ++round) {
    int waiting = 0, done = 0;
    for (int i = 0; i < count; ++i) {
      const int first = static_cast<int>((i + round * 5) % count) * lanes;
      run_warp(first, std::min(lanes, threads - first));
    }
    for (int i = 0; i < threads; ++i) {
      waiting += fibers[i]->state == State::at_barrier;
      done += fibers[i]->state == State::done;
    }
    if (done == threads) return;
    if (waiting != threads) fail("threads leave a block whose others wait at a barrier");
    for (int i = 0; i < threads; ++i) fibers[i]->state = State::ready;
  }
}

}  // namespace

const Place& here() {
  return running->place;
}

void block_barrier() {
  pause(State::at_barrier);
}

const unsigned char* exchange(const void* mine, size_t bytes) {
  if (bytes > 64) fail("a collective of more than 64 bytes a lane");
  const unsigned lane = running->place.thread.x % lanes;
  unsigned char* brought = warps[running->place.thread.x / lanes].brought[running->collectives++ % 2];
  std::memcpy(brought + 64 * lane, mine, bytes);
  pause(State::at_collective);
  return brought;
}

void* shared_memory() {
  return shared.data();
}

void copy_async(void* to, const void* from, bool zeros) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0 || (!zeros && reinterpret_cast<uintptr_t>(from) % 16 != 0))
    fail("an asynchronous copy that is not aligned to 16 bytes");
  if (running->copies.empty()) running->copies.emplace_back();
  running->copies.back().push_back({to, from, zeros});
  std::memset(to, 0xff, 16);  // it may arrive at any time from now on
}

void end_copy_group() {
  if (running->copies.empty()) running->copies.emplace_back();
  running->copies.emplace_back();
}

void wait_for_copies(int pending) {
  auto& groups = running->copies;
  while (static_cast<int>(groups.size()) > pending + 1) {  // the open one is not waited for
    for (const Copy& copy : groups.front()) {
      if (copy.zeros) {
        std::memset(copy.to, 0, 16);
      } else {
        std::memcpy(copy.to, copy.from, 16);
      }
    }
    groups.erase(groups.begin());
  }
}

void wait_for_last() {
  running->waited = true;
}

void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                  float (*to_float)(uint16_t)) {
  struct Brought {
    uint32_t a[4], b[2];
  } mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const unsigned char* brought = exchange(&mine, sizeof mine);
  const auto word = [&](unsigned lane, unsigned index) {
    uint32_t bits;
    std::memcpy(&bits, brought + 64 * lane + 4 * index, sizeof bits);
    return bits;
  };
  const unsigned lane = running->place.thread.x % lanes, group = lane / 4, in_group = lane % 4;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = group + 8 * (i / 2), column = 2 * in_group + i % 2;
    for (unsigned k = 0; k < 16; ++k) {
      const uint32_t from_a = word(row % 8 * 4 + k % 8 / 2, row / 8 + 2 * (k / 8));
      const uint32_t from_b = word(column * 4 + k % 8 / 2, 4 + k / 8);
      const unsigned shift = k % 2 * 16;
      d[i] +=
          to_float(static_cast<uint16_t>(from_a >> shift)) * to_float(static_cast<uint16_t>(from_b >> shift));
    }
  }
}

void run(dim3 grid, int threads, int64_t shared_bytes, const std::function<void()>& thread) {
  constexpr int64_t most_shared_bytes = int64_t{227} << 10;  // of an H100
  if (shared_bytes > most_shared_bytes) {
    std::fprintf(stderr, "CUDA emulation: a block asks for %lld bytes of shared memory\n",
                 static_cast<long long>(shared_bytes));
    std::abort();
  }
  thread_body = &thread;
  while (static_cast<int>(fibers.size()) < threads) fibers.push_back(std::make_unique<Fiber>());
  warps.resize((threads + lanes - 1) / lanes);
  unsigned turn = 0;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        shared.assign(shared_bytes, 0xff);
        for (int i = 0; i < threads; ++i) {
          fibers[i]->state = State::ready;
          fibers[i]->place = {dim3(i), dim3(x, y, z), dim3(threads), grid};
          fibers[i]->copies.clear();
          fibers[i]->waited = false;
        }
        run_block(threads, turn++);
      }
    }
  }
}

}  // namespace clover::kernels::cuda::emulation
