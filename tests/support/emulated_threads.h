#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tests/support/cuda_emulation.h"

// What the parts of the emulation know of each other: the threads of the blocks that run together.
namespace clover::kernels::cuda::emulation {

constexpr int lanes = 32;

enum class State { ready, at_collective, at_barrier, at_phase, at_cluster, done };

/// A copy of a thread's own, by cp.async.
struct Copy {
  void* to;
  const void* from;
  bool zeros;
};

/// A product of a warp's lanes with a box of rows, made when it is waited for.
struct Product {
  float (*d)[4];
  const uint32_t (*a)[4];  // or null: the left operand is a box
  uintptr_t b;
  int tiles;
  Number number;
  uintptr_t left = 0;
  bool adds = true, down = false;  // down: the box's rows are what is summed over
};

// GCC's own: the library's is a system call under the address sanitizer.
using JumpPoint = void* [5];

struct Thread {
  std::unique_ptr<unsigned char[]> stack;
  JumpPoint resume;
  bool started = false;
  State state = State::done;
  Place place;
  int block = 0;  // of those that run together
  unsigned collectives = 0;
  bool waited = false;                    // for the last kernel
  std::vector<std::vector<Copy>> copies;  // by group, the last one open
  std::vector<std::vector<Product>> products;
  bool multiplies = false;            // may begin products
  int barrier = 0, barrier_size = 0;  // where it waits with others
  const Barrier* phase_of = nullptr;  // whose phase it waits for
  unsigned phase = 0;
  unsigned arrivals_at_cluster = 0;
};

/// The thread that runs now, and all of the blocks that run together, block after block.
extern Thread* running;
extern std::vector<std::unique_ptr<Thread>> threads;

[[noreturn]] void fail(const char* what);
/// Others run until what `running` waits for is there.
void pause(State state);

/// Shared memory of a block that runs.
unsigned char* shared_memory_of(int block);
bool has_ended(int block);

/// Whether copies arrive at once: in every other block; in the rest not before they are waited for.
bool copies_arrive_at_once();

/// Of copies that barriers count.  Whether the phase has ended, once what was under way for it has arrived.
bool phase_has_ended(const Barrier* barrier, unsigned phase);
void forget_box_copies();
/// Fails if copies are under way for which nobody has waited.
void expect_no_box_copies();

}  // namespace clover::kernels::cuda::emulation
