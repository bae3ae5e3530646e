#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace clover::test {

/// A device that is not the CPU, for machines without a GPU: its tensors lie in ordinary memory, but ATen
/// holds them to be elsewhere, and an operator that is given tensors of both kinds throws, as on a GPU.  The
/// emulated CUDA kernels (tests/support/cuda_emulation.h) work on them.  ATen's own operators run on the CPU
/// behind it, and in a graph they are kept for later as our kernels are, those excepted whose result's shape
/// hangs on what their arguments hold.
at::Device stand_in_device();

/// How often a program would have waited for a GPU so far: at each copy from or to the CPU but those of
/// `queue_copy`.
int64_t waits_for_stand_in();
void queue_copy(const at::Tensor& from, at::Tensor& to);
void count_wait();
/// What `launches_on_stand_in` said at each wait of `count_wait`, since it was last cleared.
std::vector<int64_t>& launches_at_waits();

/// How often a program has started something on the device so far: kernels, ATen's operators and copies on
/// the device, each 1, and a graph 1, whatever it holds.  And how often it has sent it something to work on.
int64_t launches_on_stand_in();
int64_t uploads_to_stand_in();

/// From now on the device has memory for so many more graphs, and for `after_release` once unused memory is
/// given back.
void leave_room_for_graphs(int64_t most, int64_t after_release = 0);

/// What the device records as graphs from now on; its kernels overlap.
enum class Records { everything, no_overlap, nothing };
void record(Records what);

/// So many bits more than other products those of four warps cut off.
extern int warpgroup_bits_missing;

/// From now on each block of a kernel finds NaN there until one of its threads has waited for the last
/// kernel; null: nowhere.
void last_kernel_writes(void* at, size_t bytes);

}  // namespace clover::test
