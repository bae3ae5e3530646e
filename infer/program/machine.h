#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <nlohmann/json.hpp>

namespace clover::infer {

/// The hardware that timings depend on: {"cpu", "cores", "threads", "memory_bytes", "kernels"}, where
/// "kernels" is the instruction family of the CPU kernels.  For a GPU also "gpu", its name, and
/// "warpgroup_products", whether matrix products use the warpgroup instructions (wgmma).
nlohmann::json describe_machine(at::Device device = at::kCPU);

/// How the program was built: {"version", "compiler", "build_type", "libtorch", "cuda"}.
nlohmann::json describe_build();

/// Bytes per second at which all threads together read a buffer of `bytes` bytes: the median of several
/// readings.  The buffer is at most a quarter of the available memory.  A decode step reads all weights, so
/// it takes at least their bytes divided by this bandwidth.
double measure_read_bandwidth(int64_t bytes);

/// Bytes per second at which a GPU copies a buffer of `bytes` bytes, at most a quarter of its free memory.
/// Bytes read and bytes written both count.
double measure_copy_bandwidth(int64_t bytes, at::Device gpu);

/// Bytes of memory that this process can still allocate without swapping: MemAvailable, or less where a
/// cgroup limits it.
int64_t available_memory();

/// Bytes that can still be allocated on `device`: available_memory() for the CPU, a GPU's free memory.
int64_t free_memory(at::Device device);

/// The default size in bytes of a KV cache or a feature cache.  CPU: a quarter of the free memory, divided by
/// the number of processes that torchrun started on this machine.  GPU: four fifths of its free memory.
int64_t default_cache_bytes(at::Device device);

/// The number of cores that this process may run on (its CPU affinity).
int usable_cores();

/// The peak resident memory of this process in bytes since the last reset_peak_memory(), or since its start
/// where the system does not allow a reset.
int64_t peak_memory();
void reset_peak_memory();

}  // namespace clover::infer
