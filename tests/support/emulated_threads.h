#pragma once

#include <memory>
#include <vector>

#include "tests/support/cuda_emulation.h"

// What the parts of the emulation know of each other: the threads of the blocks that run together.
namespace clover::kernels::cuda::emulation {

enum class State : unsigned char { ready, at_collective, at_barrier, at_phase, at_cluster, done };

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

/// What a thread has begun, in groups that it waits for in order.
template <class T>
class Groups {
 public:
  void add(const T& item) { items_.push_back(item); }
  void end_group() { ends_.push_back(items_.size()); }

  /// Calls `finish` on every item of the oldest groups until at most `pending` are left, the open one aside.
  template <class Finish>
  void wait(int pending, const Finish& finish) {
    while (ends_.size() - first_group_ > static_cast<size_t>(pending)) {
      for (; first_item_ < ends_[first_group_]; ++first_item_) finish(items_[first_item_]);
      ++first_group_;
    }
    if (first_group_ == ends_.size() && first_item_ == items_.size()) clear();
  }

  void clear() {
    items_.clear();
    ends_.clear();
    first_item_ = first_group_ = 0;
  }

 private:
  std::vector<T> items_;
  std::vector<size_t> ends_;  // of each group that has ended: the number of items up to its last
  size_t first_item_ = 0, first_group_ = 0;
};

// GCC's own: the library's is a system call under the address sanitizer.
using JumpPoint = void* [5];

struct Warp;

struct Thread : Running {
  JumpPoint resume;
  Warp* warp = nullptr;
  bool started = false;
  bool waited = false;      // for the last kernel
  bool multiplies = false;  // may begin products
  int block = 0;            // of those that run together
  int barrier = 0;          // where it waits with others
  unsigned phase = 0;
  const Barrier* phase_of = nullptr;  // whose phase it waits for
  unsigned arrivals_at_cluster = 0;
  Groups<Copy> copies;
  Groups<Product> products;
  std::unique_ptr<unsigned char[]> stack;
};

struct Warp {
  State states[lanes];
  unsigned count;     // of its threads
  unsigned together;  // of them that have come to a collective
  Thread threads[lanes];
  alignas(64) unsigned char brought[2][lanes * bytes_a_lane];
};

/// The thread that runs now.
inline Thread& self() {
  return static_cast<Thread&>(*running);
}

[[noreturn]] void fail(const char* what);
/// Others run until what this thread waits for is there.
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
