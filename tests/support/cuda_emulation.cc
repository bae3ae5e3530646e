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

Running* running;

namespace {

constexpr size_t stack_bytes = 128 << 10;
constexpr size_t shared_alignment = 1024;
constexpr int barriers = 16;  // that a block has

struct Block {
  std::vector<unsigned char> memory;
  unsigned char* shared;                    // of it, aligned
  int alive;                                // threads that are not done
  int waiting[barriers], wanted[barriers];  // threads at each barrier, and how many open it
};

std::vector<std::unique_ptr<Warp>> warps;  // of the blocks that run together, block after block
std::vector<Block> cluster;
int block_size, warps_a_block, at_cluster;  // at_cluster: threads that wait for all of the cluster
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
    if (!self().waited) fail("a thread ends that has not waited for the last kernel");
    --cluster[self().block].alive;
    pause(State::done);
  }
}

/// Goes on with `thread`, or with the scheduler if that is null.
[[noreturn]] __attribute__((noinline)) void go_on(Thread* thread) {
  if (thread == nullptr) jump(scheduler);
  running = thread;
  if (thread->started) jump(thread->resume);
  thread->started = true;
  thread->stack.reset(new unsigned char[stack_bytes]);
  ::getcontext(&first_entry);
  first_entry.uc_stack.ss_sp = thread->stack.get();
  // Large allocations begin at one place of a page; with their ends there, too, the lanes' stacks would drive
  // each other out of the CPU's first cache.
  first_entry.uc_stack.ss_size = stack_bytes - 128 * thread->lane;
  first_entry.uc_link = nullptr;
  ::makecontext(&first_entry, thread_main, 0);
  ::setcontext(&first_entry);
  std::abort();
}

/// The next thread of the warp that can run, in the order of lanes from `lane` on; once all lanes have come
/// to a collective the first one again.  Null if the warp has to wait for others.
Thread* next_of(Warp& warp, unsigned lane) {
  for (; lane < warp.count; ++lane) {
    Thread& thread = warp.threads[lane];
    State& state = warp.states[lane];
    if (state == State::at_phase && phase_has_ended(thread.phase_of, thread.phase)) state = State::ready;
    if (state == State::ready) return &thread;
  }
  if (warp.together < lanes) return nullptr;
  warp.together = 0;
  std::memset(warp.states, static_cast<int>(State::ready), sizeof warp.states);
  return &warp.threads[0];
}

/// Until every lane of the warp waits for other warps or is done.  Whether any ran.
__attribute__((noinline)) bool run_warp(Warp& warp) {
  // Not in registers, which a jump does not bring back.
  static bool ran;
  static Warp* of;
  ran = false;
  of = &warp;
  __builtin_setjmp(scheduler);
  if (Thread* next = next_of(*of, 0)) {
    ran = true;
    go_on(next);  // threads go on with one another, and the last one comes back
  }
  if (of->together == 0) return ran;
  for (unsigned lane = 0; lane < of->count; ++lane) {
    if (of->states[lane] == State::done || of->states[lane] == State::at_barrier) {
      running = &of->threads[lane];
      fail("the lanes of a warp part at a collective");
    }
  }
  return ran;
}

template <class Action>
void for_threads_of(int block, const Action& action) {
  for (int warp = block * warps_a_block; warp < (block + 1) * warps_a_block; ++warp) {
    Warp& of = *warps[warp];
    for (unsigned lane = 0; lane < of.count; ++lane) action(of.threads[lane], of.states[lane]);
  }
}

/// Lets threads go that have all come to a barrier of their block.  Whether any went.
bool open_barriers(int block) {
  bool any = false;
  for (int barrier = 0; barrier < barriers; ++barrier) {
    int& waiting = cluster[block].waiting[barrier];
    if (waiting == 0 || waiting != cluster[block].wanted[barrier]) continue;
    any = true;
    waiting = 0;
    for_threads_of(block, [&](const Thread& thread, State& state) {
      if (state == State::at_barrier && thread.barrier == barrier) state = State::ready;
    });
  }
  return any;
}

/// The same of those that wait for all threads of the cluster.
bool open_cluster() {
  if (at_cluster == 0) return false;
  const int blocks = static_cast<int>(cluster.size());
  unsigned fewest = ~0u;
  for (int block = 0; block < blocks; ++block) {
    for_threads_of(block, [&](const Thread& thread, State state) {
      if (state != State::done) fewest = std::min(fewest, thread.arrivals_at_cluster);
    });
  }
  bool any = false;
  for (int block = 0; block < blocks; ++block) {
    for_threads_of(block, [&](const Thread& thread, State& state) {
      if (state != State::at_cluster || thread.arrivals_at_cluster > fewest) return;
      state = State::ready;
      --at_cluster;
      any = true;
    });
  }
  return any;
}

void run_cluster(unsigned turn) {
  const int count = static_cast<int>(cluster.size()) * warps_a_block;
  for (unsigned round = turn;; ++round) {
    bool any = false;
    for (int i = 0; i < count; ++i) any |= run_warp(*warps[(i + round * 5) % count]);
    for (int block = 0; block < static_cast<int>(cluster.size()); ++block) any |= open_barriers(block);
    any |= open_cluster();
    if (std::all_of(cluster.begin(), cluster.end(), [](const Block& block) { return block.alive == 0; }))
      return;
    if (!any)
      fail("threads wait for what never comes: for others that are done, or for copies that nobody began");
  }
}

/// The threads of one warp of `block`, from thread `first` on, at their beginning.
void begin_warp(Warp& warp, int block, int first, const dim3& of_grid, const dim3& grid) {
  warp.count = static_cast<unsigned>(std::min<int>(lanes, block_size - first));
  warp.together = 0;
  std::memset(warp.states, static_cast<int>(State::ready), sizeof warp.states);
  for (unsigned lane = 0; lane < warp.count; ++lane) {
    Thread& thread = warp.threads[lane];
    thread.place = {dim3(first + static_cast<int>(lane)), of_grid, dim3(block_size), grid};
    thread.lane = lane;
    thread.collectives = 0;
    thread.brought = warp.brought[0];
    thread.warp = &warp;
    thread.block = block;
    thread.copies.clear();
    thread.products.clear();
    thread.multiplies = thread.waited = false;
    thread.arrivals_at_cluster = 0;
  }
}

/// Threads of blocks (x .. x + blocks - 1, y, z), at their beginning.
void begin_cluster(int blocks, const dim3& first, const dim3& grid, int64_t shared_bytes) {
  cluster.resize(blocks);
  while (static_cast<int>(warps.size()) < blocks * warps_a_block) warps.push_back(std::make_unique<Warp>());
  at_cluster = 0;
  for (int number = 0; number < blocks; ++number) {
    Block& block = cluster[number];
    block.memory.assign(shared_bytes + shared_alignment, 0xff);
    const auto address = reinterpret_cast<uintptr_t>(block.memory.data());
    block.shared = block.memory.data() + (shared_alignment - address % shared_alignment) % shared_alignment;
    block.alive = block_size;
    std::fill_n(block.waiting, barriers, 0);
    const dim3 of_grid(first.x + number, first.y, first.z);
    for (int warp = 0; warp < warps_a_block; ++warp)
      begin_warp(*warps[number * warps_a_block + warp], number, warp * static_cast<int>(lanes), of_grid,
                 grid);
  }
  running = &warps[0]->threads[0];
  forget_box_copies();
}

}  // namespace

void fail(const char* what) {
  std::fprintf(stderr, "CUDA emulation: block %u,%u,%u thread %u: %s\n", running->place.block.x,
               running->place.block.y, running->place.block.z, running->place.thread.x, what);
  std::abort();
}

void pause(State state) {
  Thread& thread = self();
  Warp& warp = *thread.warp;
  warp.states[thread.lane] = state;
  warp.together += state == State::at_collective;
  if (__builtin_setjmp(thread.resume) == 0) go_on(next_of(warp, thread.lane + 1));
}

void wait_for_warp() {
  pause(State::at_collective);
}

bool copies_arrive_at_once() {
  return running->place.block.x % 2 == 1;
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
  block.wanted[number] = count;
  self().barrier = number;
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

float4 read_of_block(const float4* own, int block) {
  if (has_ended(block)) fail("reads shared memory of a block that has ended");
  const auto offset = reinterpret_cast<const unsigned char*>(own) - shared_memory_of(self().block);
  float4 read;
  std::memcpy(&read, shared_memory_of(block) + offset, sizeof read);
  return read;
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
  const Copy copy{to, from, zeros};
  self().copies.add(copy);
  std::memset(to, 0xff, 16);  // it may arrive at any time from now on
  if (copies_arrive_at_once()) arrive_in_memory(copy);
}

void end_copy_group() {
  self().copies.end_group();
}

void wait_for_copies(int pending) {
  const bool arrived = copies_arrive_at_once();
  self().copies.wait(pending, [&](const Copy& copy) {
    if (!arrived) arrive_in_memory(copy);
  });
}

void wait_for_prior_kernel() {
  self().waited = true;
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
  warps_a_block = (block_threads + static_cast<int>(lanes) - 1) / static_cast<int>(lanes);
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
