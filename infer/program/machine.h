#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <nlohmann/json.hpp>

namespace clover::infer {

/// What figures depend on: {"cpu", "cores", "threads", "memory_bytes", "kernels"} and, for a GPU, "gpu".
nlohmann::json describe_machine(at::Device device = at::kCPU);

/// {"version", "compiler", "build_type", "libtorch", "cuda"}.
nlohmann::json describe_build();

/// Bytes a second at which all threads together read a buffer of `bytes` (the model's weights, say), at most
/// a quarter of the memory that is left: the median of several passes.  A decode step cannot be faster than
/// its weights divided by this.
double measure_read_bandwidth(int64_t bytes);

/// Bytes a second that a GPU reads and writes while it copies a buffer of `bytes`.
double measure_copy_bandwidth(int64_t bytes, at::Device gpu);

/// Bytes of memory that a process may still take without swapping: MemAvailable, or what its cgroup leaves.
int64_t available_memory();

/// Bytes that a process may still take of what `device` computes in: `available_memory`, or a GPU's own.
int64_t free_memory(at::Device device);

/// Bytes that a cache (keys and values, or features) may take where nobody says how many: a quarter of what
/// is free, shared with the processes that torchrun started beside this one, or four fifths of a GPU.
int64_t memory_for_cache(at::Device device);

/// Cores this process may run on.
int usable_cores();

/// Largest resident memory, in bytes, since the last `restart_peak_memory` (since the start of the process
/// where the system cannot restart it).
int64_t peak_memory();
void restart_peak_memory();

}  // namespace clover::infer
