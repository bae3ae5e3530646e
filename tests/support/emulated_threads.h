#pragma once

#include <memory>
#include <vector>

#include "tests/support/cuda_emulation.h"

// What the files of the emulation share: the state of the threads of one cluster, whose blocks run together.
namespace clover::kernels::cuda::emulation {

/// Whether a thread can run, or what it waits for.
enum class State : unsigned char {
  ready,
  yielded,        // becomes ready after the other warps have run once
  at_collective,  // for the other lanes of its warp
  at_barrier,     // for other threads of its block: __syncthreads or sync_threads
  at_phase,       // for the end of a phase of an mbarrier
  at_cluster,     // for the other threads of its cluster
  done
};

/// A copy of 16 bytes that a thread began by cp.async.
struct AsyncCopy {
  void* to;
  const void* from;
  bool zeros;
};

/// One lane's part of a wgmma product, which is computed when it is waited for: d = left right, or d += left
/// right, where the warp has left [16, K] and right [K, N] with K = 16 and N = 8 * tiles.
struct Product {
  float (*d)[4];           // [tiles][4]: the lane's sums
  const uint32_t (*a)[4];  // the lane's part of the left operand; null if it is in shared memory
  uintptr_t b;             // address of the right operand in shared memory
  int tiles;
  NumberFormat format;
  uintptr_t left = 0;        // address of the left operand in shared memory, if `a` is null
  bool adds = true;          // whether the product is added to d
  bool b_is_k_by_n = false;  // b is stored as [K, N]; otherwise as [N, K]
};

/// Asynchronous work of one thread, in groups that are waited for in the order in which they were ended.
template <class T>
class Groups {
 public:
  void add(const T& item) { items_.push_back(item); }
  void end_group() { ends_.push_back(items_.size()); }

  /// Calls `finish` on each item of the oldest groups until at most `pending` ended groups are left.
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
  std::vector<size_t> ends_;                 // for each ended group: the index in items_ after its last item
  size_t first_item_ = 0, first_group_ = 0;  // the first ones that are not finished
};

// For __builtin_setjmp.  The C library's setjmp makes a system call under the address sanitizer.
using JumpPoint = void* [5];

struct Warp;

struct Thread : ThreadContext {
  JumpPoint resume;
  Warp* warp = nullptr;
  bool started = false;
  bool has_waited_for_prior_kernel = false;
  bool may_begin_products = false;         // has called begin_products since the last end_product_group
  int block = 0;                           // index of its block in the cluster
  int named_barrier = 0;                   // which one it waits at, in State::at_barrier
  const Barrier* phase_barrier = nullptr;  // in State::at_phase it waits for the end of `phase` of this one
  unsigned phase = 0;
  unsigned arrivals_at_cluster = 0;  // how often it has called arrive_at_cluster
  Groups<AsyncCopy> copies;
  Groups<Product> products;
  std::unique_ptr<unsigned char[]> stack;
};

struct Warp {
  State states[lanes];
  unsigned count;          // of its threads
  unsigned at_collective;  // how many of them wait at a collective
  Thread threads[lanes];
  alignas(64) unsigned char lane_values[2][lanes * bytes_per_lane];  // ThreadContext::lane_values
};

/// current_thread as a Thread.
inline Thread& self() {
  return static_cast<Thread&>(*current_thread);
}

/// Prints `what` with the place of the current thread, and aborts the program.
[[noreturn]] void fail(const char* what);
/// Gives the current thread this state and runs other threads; returns when it is ready again.
void pause(State state);

/// The shared memory of block `block` of the cluster.
unsigned char* shared_memory_of(int block);
bool has_ended(int block);

/// Whether copies of the current thread's block arrive at once, as in every other block.  In the others they
/// arrive only when they are waited for.
bool copies_arrive_at_once();

/// Fails if an asynchronous copy from this memory begins too early: the prior kernel seems to write there
/// (test::last_kernel_writes), and the current thread has not waited for it.
void expect_written(const void* from);

// Copies by copy_box (emulated_copies.cc).

/// Completes the pending copies that `barrier` counts, and returns whether its phase `phase` has ended.
bool phase_has_ended(const Barrier* barrier, unsigned phase);
void forget_box_copies();
/// Fails if copies are pending: no thread has waited for them.
void expect_no_box_copies();

}  // namespace clover::kernels::cuda::emulation
