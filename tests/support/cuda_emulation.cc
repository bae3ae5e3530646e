#include "tests/support/cuda_emulation.h"

#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/support/tensor_core_sum.h"

namespace clover::test {
int warpgroup_bits_missing = 0;  // declared in stand_in_device.h
}

namespace clover::kernels::cuda::emulation {
namespace {

constexpr size_t stack_bytes = 128 << 10;
constexpr int lanes = 32;

enum class State { ready, at_collective, at_barrier, done };

struct Copy {
  void* to;
  const void* from;
  bool zeros;

  void arrive() const {
    if (zeros) {
      std::memset(to, 0, 16);
    } else {
      std::memcpy(to, from, 16);
    }
  }
};

struct Product {
  float (*d)[4];
  const uint32_t (*a)[4];
  uintptr_t b;
  int tiles;
  Number number;
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
  std::vector<std::vector<Product>> products;
  bool multiplies = false;  // may begin products
  // Copies that have arrived and tensor cores of sm_90 may not see: now, and at the last barrier.
  bool hidden = false, hidden_at_barrier = false;
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
int hiding = 0;  // fibers that are hidden_at_barrier
// What the last kernel writes, and what it will have written when it is waited for.
void* written = nullptr;
std::vector<unsigned char> written_later;
JumpPoint scheduler;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "CUDA emulation: block %u,%u,%u thread %u: %s\n", running->place.block.x,
               running->place.block.y, running->place.block.z, running->place.thread.x, what);
  std::abort();
}

/// In every other block; in the rest not before they are waited for.
bool copies_arrive_at_once() {
  return running->place.block.x % 2 == 1;
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
  hiding += running->hidden - running->hidden_at_barrier;
  running->hidden_at_barrier = running->hidden;
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
  if (copies_arrive_at_once()) running->copies.back().back().arrive();
}

void end_copy_group() {
  if (running->copies.empty()) running->copies.emplace_back();
  running->copies.emplace_back();
}

void wait_for_copies(int pending) {
  auto& groups = running->copies;
  while (static_cast<int>(groups.size()) > pending + 1) {  // the open one is not waited for
    running->hidden = true;
    if (!copies_arrive_at_once())
      for (const Copy& copy : groups.front()) copy.arrive();
    groups.erase(groups.begin());
  }
}

void wait_for_last() {
  running->waited = true;
  if (written != nullptr) std::memcpy(written, written_later.data(), written_later.size());
}

namespace {

void multiply_add_cut_off(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                          const Number& number, int bits) {
  const uint32_t words[] = {a[0], a[1], a[2], a[3], b0, b1};
  float mine[12];
  for (int i = 0; i < 12; ++i) mine[i] = number.to_float(static_cast<uint16_t>(words[i / 2] >> i % 2 * 16));
  const unsigned char* brought = exchange(mine, sizeof mine);
  const unsigned lane = running->place.thread.x % lanes, group = lane / 4, in_group = lane % 4;
  // Of the four lanes that hold a line: their words number `first` and `first + next`.
  const auto read = [&](unsigned line, unsigned first, unsigned next) {
    Line read;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned word = first + k / 8 * next;
      std::memcpy(&read.x[k], brought + 64 * (line * 4 + k % 8 / 2) + 4 * (2 * word + k % 2), sizeof(float));
      read.exponent[k] = exponent_of(read.x[k], number.least_exponent);
    }
    return read;
  };
  const Line rows[] = {read(group, 0, 2), read(group, 1, 2)},
             columns[] = {read(2 * in_group, 4, 1), read(2 * in_group + 1, 4, 1)};
  for (unsigned i = 0; i < 4; ++i) d[i] = sum_at_once(d[i], rows[i / 2], columns[i % 2], bits);
}

constexpr int bits_of_sm_90 = 25;

}  // namespace

void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const Number& number) {
  multiply_add_cut_off(d, a, b0, b1, number, bits_of_sm_90);
}

void begin_multiply(float (*d)[4], const uint32_t (&a)[4], uintptr_t b, int tiles, const Number& number) {
  if (hiding > 0) fail("tensor cores may not see what was copied for them");
  if (!running->multiplies) fail("a product whose sums may not be as the threads have left them");
  if (running->products.empty()) running->products.emplace_back();
  running->products.back().push_back({d, &a, b, tiles, number});
}

void begin_products() {
  running->multiplies = true;
}

void end_product_group() {
  running->multiplies = false;
  if (running->products.empty()) running->products.emplace_back();
  running->products.emplace_back();
}

void wait_for_products(int pending) {
  auto& groups = running->products;
  const unsigned lane = running->place.thread.x % lanes;
  const auto word = [](uintptr_t address) {
    uint32_t bits;
    std::memcpy(&bits, reinterpret_cast<const void*>(address ^ (address >> 7 & 3) << 4), sizeof bits);
    return bits;
  };
  while (static_cast<int>(groups.size()) > pending + 1) {
    for (const Product& product : groups.front()) {
      for (int tile = 0; tile < product.tiles; ++tile) {
        const uintptr_t from = product.b + (tile * 8 + lane / 4) * 64 + lane % 4 * 4;
        multiply_add_cut_off(product.d[tile], *product.a, word(from), word(from + 16), product.number,
                             bits_of_sm_90 - test::warpgroup_bits_missing);
      }
    }
    groups.erase(groups.begin());
  }
}

void show_tensor_cores() {
  running->hidden = false;
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
        if (written != nullptr) std::memset(written, 0xff, written_later.size());
        hiding = 0;
        for (int i = 0; i < threads; ++i) {
          fibers[i]->state = State::ready;
          fibers[i]->place = {dim3(i), dim3(x, y, z), dim3(threads), grid};
          fibers[i]->copies.clear();
          fibers[i]->products.clear();
          fibers[i]->multiplies = false;
          fibers[i]->hidden = fibers[i]->hidden_at_barrier = false;
          fibers[i]->waited = false;
        }
        run_block(threads, turn++);
      }
    }
  }
}

}  // namespace clover::kernels::cuda::emulation

namespace clover::test {

void last_kernel_writes(void* at, size_t bytes) {
  using namespace kernels::cuda::emulation;
  const auto* begin = static_cast<const unsigned char*>(at);
  written = at;
  written_later.assign(begin, begin + bytes);
}

}  // namespace clover::test
