#include "tests/support/cuda_emulation.h"

#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/support/emulated_threads.h"

// Runs the threads of a cluster as fibers, and decides which of them runs next.
namespace clover::kernels::cuda::emulation {

ThreadContext* current_thread;

namespace {

constexpr size_t stack_bytes = 128 << 10;
constexpr size_t shared_alignment = 1024;
constexpr int named_barriers = 16;  // of a block; __syncthreads uses number 0

struct Block {
  std::vector<unsigned char> memory;
  unsigned char* shared;  // shared memory: the aligned part of `memory`
  int alive;              // threads that are not done
  // For each named barrier, how many threads wait at it, and how many it waits for.
  int waiting[named_barriers], expected[named_barriers];
};

std::vector<Block> cluster;                // the blocks that run now
std::vector<std::unique_ptr<Warp>> warps;  // of the cluster, block after block
int block_size, warps_per_block;           // threads and warps of a block
int at_cluster;                            // how many threads are in State::at_cluster
const std::function<void()>* thread_body;  // the kernel
ucontext_t first_entry;                    // where a new fiber starts
// Memory that the prior kernel seems to write (test::last_kernel_writes), null for none, and its contents,
// which appear there when a thread waits for the prior kernel.
void* prior_kernel_output = nullptr;
std::vector<unsigned char> prior_kernel_result;
JumpPoint scheduler;  // in run_warp

[[noreturn]] __attribute__((noinline)) void jump(JumpPoint& to) {
  __builtin_longjmp(to, 1);
}

void thread_main() {
  for (;;) {
    (*thread_body)();
    if (!self().has_waited_for_prior_kernel) fail("a thread ends that has not waited for the last kernel");
    --cluster[self().block].alive;
    pause(State::done);
  }
}

/// Switches to `thread`, or to the scheduler if it is null.
[[noreturn]] __attribute__((noinline)) void switch_to(Thread* thread) {
  if (thread == nullptr) jump(scheduler);
  current_thread = thread;
  if (thread->started) jump(thread->resume);
  thread->started = true;
  thread->stack.reset(new unsigned char[stack_bytes]);
  ::getcontext(&first_entry);
  first_entry.uc_stack.ss_sp = thread->stack.get();
  // Large allocations begin at the same offset of a page.  Different sizes put the tops of the lanes' stacks
  // at different offsets, so that they do not evict each other from the CPU's L1 cache.
  first_entry.uc_stack.ss_size = stack_bytes - 128 * thread->lane;
  first_entry.uc_link = nullptr;
  ::makecontext(&first_entry, thread_main, 0);
  ::setcontext(&first_entry);
  std::abort();
}

/// The first ready thread of the warp from lane `lane` on.  If there is none but all lanes are at a
/// collective, makes them ready and returns lane 0.  Null if the warp must wait for other warps.
Thread* next_ready_thread(Warp& warp, unsigned lane) {
  for (; lane < warp.count; ++lane) {
    Thread& thread = warp.threads[lane];
    State& state = warp.states[lane];
    if (state == State::at_phase && phase_has_ended(thread.phase_barrier, thread.phase)) state = State::ready;
    if (state == State::ready) return &thread;
  }
  if (warp.at_collective < lanes) return nullptr;
  warp.at_collective = 0;
  std::memset(warp.states, static_cast<int>(State::ready), sizeof warp.states);
  return &warp.threads[0];
}

/// Runs the warp until each of its threads is done or waits for other warps.  Returns whether any thread ran.
__attribute__((noinline)) bool run_warp(Warp& warp) {
  // Static, since a jump does not restore registers.
  static bool ran;
  static Warp* this_warp;
  ran = false;
  this_warp = &warp;
  for (unsigned lane = 0; lane < warp.count; ++lane)
    if (warp.states[lane] == State::yielded) warp.states[lane] = State::ready;
  __builtin_setjmp(scheduler);
  if (Thread* next = next_ready_thread(*this_warp, 0)) {
    ran = true;
    switch_to(next);  // each thread switches to the next one, and the last one jumps to `scheduler`
  }
  if (this_warp->at_collective == 0) return ran;
  for (unsigned lane = 0; lane < this_warp->count; ++lane) {
    if (this_warp->states[lane] == State::done || this_warp->states[lane] == State::at_barrier) {
      current_thread = &this_warp->threads[lane];
      fail("the lanes of a warp part at a collective");
    }
  }
  return ran;
}

/// Calls action(thread, its state) for each thread of a block.
template <class Action>
void for_threads_of(int block, const Action& action) {
  for (int i = block * warps_per_block; i < (block + 1) * warps_per_block; ++i) {
    Warp& warp = *warps[i];
    for (unsigned lane = 0; lane < warp.count; ++lane) action(warp.threads[lane], warp.states[lane]);
  }
}

/// Makes the threads ready that wait at a complete named barrier of the block.  Returns whether there were
/// any.
bool open_barriers(int block) {
  bool opened = false;
  for (int barrier = 0; barrier < named_barriers; ++barrier) {
    int& waiting = cluster[block].waiting[barrier];
    if (waiting == 0 || waiting != cluster[block].expected[barrier]) continue;
    opened = true;
    waiting = 0;
    for_threads_of(block, [&](const Thread& thread, State& state) {
      if (state == State::at_barrier && thread.named_barrier == barrier) state = State::ready;
    });
  }
  return opened;
}

/// Makes the threads in State::at_cluster ready for which all other threads of the cluster have arrived.
/// Returns whether there were any.
bool open_cluster_barrier() {
  if (at_cluster == 0) return false;
  const int blocks = static_cast<int>(cluster.size());
  unsigned fewest = ~0u;
  for (int block = 0; block < blocks; ++block) {
    for_threads_of(block, [&](const Thread& thread, State state) {
      if (state != State::done) fewest = std::min(fewest, thread.arrivals_at_cluster);
    });
  }
  bool opened = false;
  for (int block = 0; block < blocks; ++block) {
    for_threads_of(block, [&](const Thread& thread, State& state) {
      if (state != State::at_cluster || thread.arrivals_at_cluster > fewest) return;
      state = State::ready;
      --at_cluster;
      opened = true;
    });
  }
  return opened;
}

/// Runs the threads of the cluster to their ends.  The order of warps depends on `first_round`.
void run_cluster(unsigned first_round) {
  const int count = static_cast<int>(cluster.size()) * warps_per_block;
  for (unsigned round = first_round;; ++round) {
    bool progress = false;
    for (int i = 0; i < count; ++i) progress |= run_warp(*warps[(i + round * 5) % count]);
    for (int block = 0; block < static_cast<int>(cluster.size()); ++block) progress |= open_barriers(block);
    progress |= open_cluster_barrier();
    if (std::all_of(cluster.begin(), cluster.end(), [](const Block& block) { return block.alive == 0; }))
      return;
    if (!progress)
      fail("threads wait for what never comes: for others that are done, or for copies that nobody began");
  }
}

/// Initialises a warp of block number `block` of the cluster; `first`: index in the block of its first
/// thread, `block_index`: blockIdx.
void begin_warp(Warp& warp, int block, int first, const dim3& block_index, const dim3& grid) {
  warp.count = static_cast<unsigned>(std::min<int>(lanes, block_size - first));
  warp.at_collective = 0;
  std::memset(warp.states, static_cast<int>(State::ready), sizeof warp.states);
  for (unsigned lane = 0; lane < warp.count; ++lane) {
    Thread& thread = warp.threads[lane];
    thread.indices = {dim3(first + static_cast<int>(lane)), block_index, dim3(block_size), grid};
    thread.lane = lane;
    thread.collective_count = 0;
    thread.lane_values = warp.lane_values[0];
    thread.warp = &warp;
    thread.block = block;
    thread.copies.clear();
    thread.products.clear();
    thread.may_begin_products = thread.has_waited_for_prior_kernel = false;
    thread.arrivals_at_cluster = 0;
  }
}

/// Initialises the cluster of `blocks` blocks whose first one has blockIdx `first`.
void begin_cluster(int blocks, const dim3& first, const dim3& grid, int64_t shared_bytes) {
  cluster.resize(blocks);
  while (static_cast<int>(warps.size()) < blocks * warps_per_block) warps.push_back(std::make_unique<Warp>());
  at_cluster = 0;
  for (int number = 0; number < blocks; ++number) {
    Block& block = cluster[number];
    block.memory.assign(shared_bytes + shared_alignment, 0xff);
    const auto address = reinterpret_cast<uintptr_t>(block.memory.data());
    block.shared = block.memory.data() + (shared_alignment - address % shared_alignment) % shared_alignment;
    block.alive = block_size;
    std::fill_n(block.waiting, named_barriers, 0);
    const dim3 block_index(first.x + number, first.y, first.z);
    for (int warp = 0; warp < warps_per_block; ++warp)
      begin_warp(*warps[number * warps_per_block + warp], number, warp * static_cast<int>(lanes), block_index,
                 grid);
  }
  current_thread = &warps[0]->threads[0];
  forget_box_copies();
}

}  // namespace

void fail(const char* what) {
  std::fprintf(stderr, "CUDA emulation: block %u,%u,%u thread %u: %s\n", current_thread->indices.block.x,
               current_thread->indices.block.y, current_thread->indices.block.z,
               current_thread->indices.thread.x, what);
  std::abort();
}

void pause(State state) {
  Thread& thread = self();
  Warp& warp = *thread.warp;
  warp.states[thread.lane] = state;
  warp.at_collective += state == State::at_collective;
  if (__builtin_setjmp(thread.resume) == 0) switch_to(next_ready_thread(warp, thread.lane + 1));
}

void wait_for_warp() {
  pause(State::at_collective);
}

bool copies_arrive_at_once() {
  return current_thread->indices.block.x % 2 == 1;
}

unsigned char* shared_memory_of(int block) {
  return cluster[block].shared;
}

bool has_ended(int block) {
  return cluster[block].alive == 0;
}

void* shared_memory() {
  return shared_memory_of(self().block);
}

void sync_threads(int number, int count) {
  Block& block = cluster[self().block];
  ++block.waiting[number];
  block.expected[number] = count;
  self().named_barrier = number;
  pause(State::at_barrier);
}

void block_barrier() {
  sync_threads(0, block_size);
}

void arrive_at_cluster() {
  ++self().arrivals_at_cluster;
}

void wait_for_cluster() {
  ++at_cluster;
  pause(State::at_cluster);
}

float4 read_from_block(const float4* own, int block) {
  if (has_ended(block)) fail("reads shared memory of a block that has ended");
  const auto offset = reinterpret_cast<const unsigned char*>(own) - shared_memory_of(self().block);
  float4 read;
  std::memcpy(&read, shared_memory_of(block) + offset, sizeof read);
  return read;
}

namespace {

void arrive_in_memory(const AsyncCopy& copy) {
  if (copy.zeros) {
    std::memset(copy.to, 0, 16);
  } else {
    std::memcpy(copy.to, copy.from, 16);
  }
}

}  // namespace

void expect_written(const void* from) {
  if (prior_kernel_output == nullptr || self().has_waited_for_prior_kernel) return;
  const auto* begin = static_cast<const unsigned char*>(prior_kernel_output);
  const auto* copied = static_cast<const unsigned char*>(from);  // 16 bytes
  if (copied + 16 > begin && copied < begin + prior_kernel_result.size())
    fail("a copy begins before what it reads was waited for");
}

void copy_async(void* to, const void* from, bool zeros) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0 || (!zeros && reinterpret_cast<uintptr_t>(from) % 16 != 0))
    fail("an asynchronous copy that is not aligned to 16 bytes");
  if (!zeros) expect_written(from);
  const AsyncCopy copy{to, from, zeros};
  self().copies.add(copy);
  std::memset(to, 0xff, 16);  // the copy may arrive at any time from now on, so nothing may be read there
  if (copies_arrive_at_once()) arrive_in_memory(copy);
}

void end_copy_group() {
  self().copies.end_group();
}

void wait_for_copies(int pending) {
  const bool have_arrived = copies_arrive_at_once();
  self().copies.wait(pending, [&](const AsyncCopy& copy) {
    if (!have_arrived) arrive_in_memory(copy);
  });
}

void wait_for_prior_kernel() {
  self().has_waited_for_prior_kernel = true;
  if (prior_kernel_output != nullptr)
    std::memcpy(prior_kernel_output, prior_kernel_result.data(), prior_kernel_result.size());
}

void run(dim3 grid, int blocks, int block_threads, int64_t shared_bytes,
         const std::function<void()>& thread) {
  constexpr int64_t max_shared_bytes = int64_t{227} << 10;  // of a block on an H100
  if (shared_bytes > max_shared_bytes) {
    std::fprintf(stderr, "CUDA emulation: a block asks for %lld bytes of shared memory\n",
                 static_cast<long long>(shared_bytes));
    std::abort();
  }
  thread_body = &thread;
  block_size = block_threads;
  warps_per_block = (block_threads + static_cast<int>(lanes) - 1) / static_cast<int>(lanes);
  unsigned cluster_number = 0;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; x += blocks) {
        if (prior_kernel_output != nullptr)
          std::memset(prior_kernel_output, 0xff, prior_kernel_result.size());
        begin_cluster(blocks, dim3(x, y, z), grid, shared_bytes);
        run_cluster(cluster_number++);
        expect_no_box_copies();
      }
    }
  }
}

}  // namespace clover::kernels::cuda::emulation

namespace clover::test {

void last_kernel_writes(void* memory, size_t bytes) {
  using namespace kernels::cuda::emulation;
  const auto* begin = static_cast<const unsigned char*>(memory);
  prior_kernel_output = memory;
  prior_kernel_result.assign(begin, begin + bytes);
}

}  // namespace clover::test
