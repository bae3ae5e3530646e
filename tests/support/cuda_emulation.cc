#include "tests/support/cuda_emulation.h"

#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/support/emulated_threads.h"

// Threads as fibers, and whose turn it is.
namespace clover::kernels::cuda::emulation {

Thread* running;
std::vector<std::unique_ptr<Thread>> threads;

namespace {

constexpr size_t stack_bytes = 128 << 10;
constexpr size_t shared_alignment = 1024;

// What the lanes of a warp bring to a collective; two, for a lane may be at the next one already.
struct Warp {
  unsigned char brought[2][lanes * 64];
};

struct Block {
  std::vector<unsigned char> memory;
  unsigned char* shared;  // of it, aligned
};

std::vector<Warp> warps;
std::vector<Block> cluster;
int block_size, warps_a_block, alive;  // threads: of a block, and of all that run together
const std::function<void()>* thread_body;
ucontext_t first_entry;
// What the last kernel writes, and what it will have written when it is waited for.
void* written = nullptr;
std::vector<unsigned char> written_later;
JumpPoint scheduler;

[[noreturn]] __attribute__((noinline)) void jump(JumpPoint& to) {
  __builtin_longjmp(to, 1);
}

void thread_main() {
  for (;;) {
    (*thread_body)();
    if (!running->waited) fail("a thread ends that has not waited for the last kernel");
    pause(State::done);
  }
}

void resume(Thread& thread) {
  running = &thread;
  if (__builtin_setjmp(scheduler) != 0) return;
  if (thread.started) jump(thread.resume);
  thread.started = true;
  thread.stack.reset(new unsigned char[stack_bytes]);
  ::getcontext(&first_entry);
  first_entry.uc_stack.ss_sp = thread.stack.get();
  first_entry.uc_stack.ss_size = stack_bytes;
  first_entry.uc_link = nullptr;
  ::makecontext(&first_entry, thread_main, 0);
  ::setcontext(&first_entry);
}

/// Until every lane of the warp waits for other warps or is done.  Whether any ran.
bool run_warp(int first, int count) {
  for (bool ran = false;; ran = true) {
    int ready = 0, together = 0, elsewhere = 0;
    for (int i = 0; i < count; ++i) {
      Thread& thread = *threads[first + i];
      running = &thread;
      if (thread.state == State::at_phase && phase_has_ended(thread.phase_of, thread.phase))
        thread.state = State::ready;
      if (thread.state == State::ready) ++ready, resume(thread);
      together += thread.state == State::at_collective;
      elsewhere += thread.state == State::done || thread.state == State::at_barrier;
    }
    if (together == lanes) {
      for (int i = 0; i < count; ++i) threads[first + i]->state = State::ready;
    } else if (together > 0 && elsewhere > 0) {
      fail("the lanes of a warp part at a collective");
    } else if (ready == 0) {
      return ran;
    }
  }
}

/// Lets threads go that have all come to a barrier of their block.  Whether any went.
bool open_barriers(int block) {
  bool any = false;
  const auto of_block = [&](const auto& action) {
    for (int i = block * block_size; i < (block + 1) * block_size; ++i) action(*threads[i]);
  };
  constexpr int barriers = 16;  // that a block has
  for (int barrier = 0; barrier < barriers; ++barrier) {
    int waiting = 0, wanted = 0;
    of_block([&](const Thread& thread) {
      if (thread.state != State::at_barrier || thread.barrier != barrier) return;
      ++waiting, wanted = thread.barrier_size;
    });
    if (waiting == 0 || waiting != wanted) continue;
    any = true;
    of_block([&](Thread& thread) {
      if (thread.state == State::at_barrier && thread.barrier == barrier) thread.state = State::ready;
    });
  }
  return any;
}

/// The same of those that wait for all threads of the cluster.
bool open_cluster() {
  unsigned fewest = ~0u;
  for (int i = 0; i < alive; ++i)
    if (threads[i]->state != State::done) fewest = std::min(fewest, threads[i]->arrivals_at_cluster);
  bool any = false;
  for (int i = 0; i < alive; ++i) {
    if (threads[i]->state != State::at_cluster || threads[i]->arrivals_at_cluster > fewest) continue;
    threads[i]->state = State::ready;
    any = true;
  }
  return any;
}

bool are_done(int first, int count) {
  const auto begin = threads.begin() + first;
  return std::all_of(begin, begin + count, [](const auto& thread) { return thread->state == State::done; });
}

void run_cluster(unsigned turn) {
  const int count = static_cast<int>(cluster.size()) * warps_a_block;
  for (unsigned round = turn;; ++round) {
    bool any = false;
    for (int i = 0; i < count; ++i) {
      const int warp = static_cast<int>((i + round * 5) % count), in_block = warp % warps_a_block * lanes;
      any |= run_warp(warp / warps_a_block * block_size + in_block, std::min(lanes, block_size - in_block));
    }
    for (int block = 0; block < static_cast<int>(cluster.size()); ++block) any |= open_barriers(block);
    any |= open_cluster();
    if (are_done(0, alive)) return;
    if (!any)
      fail("threads wait for what never comes: for others that are done, or for copies that nobody began");
  }
}

/// Threads of blocks (x .. x + blocks - 1, y, z), at their beginning.
void begin_cluster(int blocks, const dim3& first, const dim3& grid, int64_t shared_bytes) {
  cluster.resize(blocks);
  for (Block& block : cluster) {
    block.memory.assign(shared_bytes + shared_alignment, 0xff);
    const auto address = reinterpret_cast<uintptr_t>(block.memory.data());
    block.shared = block.memory.data() + (shared_alignment - address % shared_alignment) % shared_alignment;
  }
  alive = blocks * block_size;
  while (static_cast<int>(threads.size()) < alive) threads.push_back(std::make_unique<Thread>());
  warps.resize(blocks * warps_a_block);
  for (int i = 0; i < alive; ++i) {
    Thread& thread = *threads[i];
    thread.state = State::ready;
    thread.block = i / block_size;
    thread.place = {dim3(i % block_size), dim3(first.x + thread.block, first.y, first.z), dim3(block_size),
                    grid};
    thread.collectives = 0;
    thread.copies.clear();
    thread.products.clear();
    thread.multiplies = thread.waited = false;
    thread.arrivals_at_cluster = 0;
  }
  forget_box_copies();
}

}  // namespace

void fail(const char* what) {
  std::fprintf(stderr, "CUDA emulation: block %u,%u,%u thread %u: %s\n", running->place.block.x,
               running->place.block.y, running->place.block.z, running->place.thread.x, what);
  std::abort();
}

void pause(State state) {
  running->state = state;
  if (__builtin_setjmp(running->resume) == 0) jump(scheduler);
}

bool copies_arrive_at_once() {
  return running->place.block.x % 2 == 1;
}

unsigned char* shared_memory_of(int block) {
  return cluster[block].shared;
}

bool has_ended(int block) {
  return are_done(block * block_size, block_size);
}

const Place& here() {
  return running->place;
}

void* shared_memory() {
  return shared_memory_of(running->block);
}

void sync_threads(int number, int count) {
  running->barrier = number;
  running->barrier_size = count;
  pause(State::at_barrier);
}

void block_barrier() {
  sync_threads(0, block_size);
}

void arrive_at_cluster() {
  ++running->arrivals_at_cluster;
}

void wait_for_cluster() {
  pause(State::at_cluster);
}

float4 read_of_block(const float4* own, int block) {
  if (has_ended(block)) fail("reads shared memory of a block that has ended");
  const auto offset = reinterpret_cast<const unsigned char*>(own) - shared_memory_of(running->block);
  float4 read;
  std::memcpy(&read, shared_memory_of(block) + offset, sizeof read);
  return read;
}

const unsigned char* exchange(const void* mine, size_t bytes) {
  if (bytes > 64) fail("a collective of more than 64 bytes a lane");
  const unsigned lane = running->place.thread.x % lanes;
  Warp& warp = warps[running->block * warps_a_block + running->place.thread.x / lanes];
  unsigned char* brought = warp.brought[running->collectives++ % 2];
  std::memcpy(brought + 64 * lane, mine, bytes);
  pause(State::at_collective);
  return brought;
}

namespace {

void arrive_in_memory(const Copy& copy) {
  if (copy.zeros) {
    std::memset(copy.to, 0, 16);
  } else {
    std::memcpy(copy.to, copy.from, 16);
  }
}

}  // namespace

void copy_async(void* to, const void* from, bool zeros) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0 || (!zeros && reinterpret_cast<uintptr_t>(from) % 16 != 0))
    fail("an asynchronous copy that is not aligned to 16 bytes");
  if (running->copies.empty()) running->copies.emplace_back();
  running->copies.back().push_back({to, from, zeros});
  std::memset(to, 0xff, 16);  // it may arrive at any time from now on
  if (copies_arrive_at_once()) arrive_in_memory(running->copies.back().back());
}

void end_copy_group() {
  if (running->copies.empty()) running->copies.emplace_back();
  running->copies.emplace_back();
}

void wait_for_copies(int pending) {
  auto& groups = running->copies;
  while (static_cast<int>(groups.size()) > pending + 1) {  // the open one is not waited for
    if (!copies_arrive_at_once())
      for (const Copy& copy : groups.front()) arrive_in_memory(copy);
    groups.erase(groups.begin());
  }
}

void wait_for_last() {
  running->waited = true;
  if (written != nullptr) std::memcpy(written, written_later.data(), written_later.size());
}

void run(dim3 grid, int blocks, int block_threads, int64_t shared_bytes,
         const std::function<void()>& thread) {
  constexpr int64_t most_shared_bytes = int64_t{227} << 10;  // of an H100
  if (shared_bytes > most_shared_bytes) {
    std::fprintf(stderr, "CUDA emulation: a block asks for %lld bytes of shared memory\n",
                 static_cast<long long>(shared_bytes));
    std::abort();
  }
  thread_body = &thread;
  block_size = block_threads;
  warps_a_block = (block_threads + lanes - 1) / lanes;
  unsigned turn = 0;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; x += blocks) {
        if (written != nullptr) std::memset(written, 0xff, written_later.size());
        begin_cluster(blocks, dim3(x, y, z), grid, shared_bytes);
        run_cluster(turn++);
        expect_no_box_copies();
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
