#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace clover::test {

/// A device of ATen that stands in for a GPU in tests.  Its tensors are in ordinary memory, but ATen takes
/// them for tensors of another device: an operator that gets tensors of both the CPU and this device throws,
/// as on a GPU.  The emulated CUDA kernels (tests/support/cuda_emulation.h) work on these tensors.  ATen's
/// operators on them are run on the CPU.  While a graph is recorded they are recorded like kernels, and an
/// operator whose result has a shape that depends on its arguments' values throws.
at::Device stand_in_device();

/// How often the program would have waited for a GPU so far: once for each call of `count_wait`, and for each
/// copy between CPU and device except those of `queue_copy`.
int64_t waits_for_stand_in();
/// Copies between CPU and device as an asynchronous copy would, without a wait.
void queue_copy(const at::Tensor& from, at::Tensor& to);
void count_wait();
/// The value of `launches_on_stand_in` at each call of `count_wait` since the list was last cleared.
std::vector<int64_t>& launches_at_waits();

/// How many kernels, operators of ATen, copies within the device and graphs the program has started on the
/// device so far.  A graph counts as 1.
int64_t launches_on_stand_in();
/// How many copies from the CPU to the device `queue_copy` has made so far.
int64_t uploads_to_stand_in();

/// From now on the device has memory for `max_graphs` more graphs, and for `after_release` further ones after
/// kernels::release_unused_memory.
void leave_room_for_graphs(int64_t max_graphs, int64_t after_release = 0);

/// What the device can record as graphs: everything, only kernels that do not overlap, or nothing.
enum class Records { everything, no_overlap, nothing };
/// Sets what the device can record from now on, and lets kernels overlap again.
void record(Records what);

/// By how many bits the sums of wgmma products are less precise than those of mma products (argument `bits`
/// of multiply_add_warp).
extern int warpgroup_bits_missing;

/// From now on kernels behave as if the prior kernel wrote this memory: each block finds NaN there until one
/// of its threads has waited for the prior kernel.  Null: no such memory.
void last_kernel_writes(void* memory, size_t bytes);

}  // namespace clover::test
