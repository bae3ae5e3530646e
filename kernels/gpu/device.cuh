#pragma once

// What CUDA kernels are written with: launches, PTX instructions that C++ lacks, and reductions in a fixed
// order. Tests compile kernels as C++ and run them on the CPU; tests/support/cuda_emulation.h then replaces
// what stands between #if !defined(CLOVER_CUDA_EMULATION) and #endif.
#if !defined(CLOVER_CUDA_EMULATION)
#include <cuda_runtime.h>
#endif

#include <cstdint>
#include <cstdlib>
#include <map>

#include "kernels/gpu/numbers.h"
#include "kernels/gpu/overlap.h"
#include "kernels/op/element.h"
#include "kernels/op/gpu_context.h"

namespace clover::kernels::cuda {

constexpr int warp_size = 32;
constexpr unsigned all_lanes = 0xffffffffu;

#if !defined(CLOVER_CUDA_EMULATION)

/// What launches need to know of a device, queried once for each device and thread.
struct LaunchSettings {
  int64_t shared_bytes_per_block = 0;  // the most shared memory, static and dynamic, of a block
  int multiprocessors = 1;
  bool is_sm_90 = false;
  // By kernel: whether it may start before the previous kernel ends, which it may if it was compiled for
  // sm_90 or later.
  std::map<const void*, bool> overlaps;
  std::map<const void*, int> max_active_clusters;  // by kernel: clusters that can run at once

  /// Those of the current device.
  static LaunchSettings& of_device() {
    thread_local std::map<int, LaunchSettings> by_device;
    int device = 0, bytes = 0, major = 0, minor = 0;
    cudaGetDevice(&device);
    const auto [found, inserted] = by_device.try_emplace(device);
    if (!inserted) return found->second;
    if (cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess)
      found->second.shared_bytes_per_block = bytes;
    cudaDeviceGetAttribute(&found->second.multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    found->second.is_sm_90 = major == 9 && minor == 0;
    return found->second;
  }

  /// Prepares `kernel` for its first launch: allows it as much shared memory as a block can have, and sets
  /// the largest share of shared memory in the L1 cache.  All kernels have the same share, because a
  /// multiprocessor changes it only while it is idle, so that kernels with different shares could not
  /// overlap.  Sets `may_overlap` to overlaps[kernel].
  cudaError_t prepare(const void* kernel, bool& may_overlap) {
    const auto found = overlaps.find(kernel);
    if (found != overlaps.end()) {
      may_overlap = found->second;
      return cudaSuccess;
    }
    cudaFuncAttributes attributes{};
    cudaError_t result = cudaFuncGetAttributes(&attributes, kernel);
    if (result != cudaSuccess) return result;
    result = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared);
    if (result != cudaSuccess) return result;
    const int64_t max_dynamic_bytes =
        shared_bytes_per_block - static_cast<int64_t>(attributes.sharedSizeBytes);
    result = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(max_dynamic_bytes));
    if (result != cudaSuccess) return result;
    may_overlap = overlaps[kernel] = attributes.ptxVersion >= 90;
    return cudaSuccess;
  }
};

/// Bytes of shared memory that a block of the current device can have, static and dynamic.
inline int64_t shared_bytes_per_block() {
  return LaunchSettings::of_device().shared_bytes_per_block;
}

/// Multiprocessors of the current device.
inline int multiprocessors() {
  return LaunchSettings::of_device().multiprocessors;
}

/// Whether the current device has wgmma (warpgroup.cuh), which is sm_90 alone.  The environment variable
/// CLOVER_NO_WARPGROUP makes it false, for debugging.
inline bool has_warpgroup_products() {
  static const bool allowed = std::getenv("CLOVER_NO_WARPGROUP") == nullptr;
  return allowed && LaunchSettings::of_device().is_sm_90;
}

/// Launches `kernel` on `stream` with Programmatic Dependent Launch (CUDA programming guide): it may start
/// while the kernel before it still runs.  So each thread must call `wait_for_prior_kernel` before it reads
/// what another kernel has written and before it writes to global memory.  `threads`: of a block;
/// `shared_bytes`: of dynamic shared memory.  c10::Error, with `name`, if the launch fails.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, int threads, int64_t shared_bytes,
            Stream stream, const Arguments&... arguments) {
  bool may_overlap = false;
  cudaError_t result =
      LaunchSettings::of_device().prepare(reinterpret_cast<const void*>(kernel), may_overlap);
  if (result == cudaSuccess) {
    cudaLaunchAttribute overlap{};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &overlap;
    config.numAttrs = may_overlap && kernels_overlap() ? 1 : 0;
    result = cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
  }
  if (result == cudaSuccess) return;
  cudaGetLastError();  // clears the error, which the next line reports
  launch_failed(name, cudaGetErrorString(result));
}

/// The same for a kernel declared with __cluster_dims__(Blocks, 1, 1); emulation needs to know `Blocks`.
template <int Blocks, class... Parameters, class... Arguments>
void launch_clusters(const char* name, void (*kernel)(Parameters...), dim3 grid, int threads,
                     int64_t shared_bytes, Stream stream, const Arguments&... arguments) {
  launch(name, kernel, grid, threads, shared_bytes, stream, arguments...);
}

/// How many clusters of such a kernel can run at once on the current device, at least 1.
template <int Blocks, class... Parameters>
int max_active_clusters(void (*kernel)(Parameters...), int threads, int64_t shared_bytes) {
  LaunchSettings& settings = LaunchSettings::of_device();
  const auto* key = reinterpret_cast<const void*>(kernel);
  const auto found = settings.max_active_clusters.find(key);
  if (found != settings.max_active_clusters.end()) return found->second;
  bool may_overlap = false;
  int clusters = 0;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(Blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  if (settings.prepare(key, may_overlap) != cudaSuccess ||
      cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) != cudaSuccess)
    cudaGetLastError();  // clears the error; the launch will report it again
  return settings.max_active_clusters[key] = clusters > 0 ? clusters : 1;
}

/// Lets the next kernel of the stream start once all blocks of this kernel have called it or ended
/// (griddepcontrol.launch_dependents).
__device__ inline void launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Waits until the kernels before this one have ended and their writes are visible (griddepcontrol.wait).
__device__ inline void wait_for_prior_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// The kernel's dynamic shared memory, aligned to 16 bytes.
template <class T>
__device__ inline T* shared_memory() {
  extern __shared__ __align__(16) unsigned char clover_shared_memory[];
  return reinterpret_cast<T*>(clover_shared_memory);
}

/// Tensor cores: D += A B, where tiles A [16, 16] and B [16, 8] are bf16 or fp16 and D [16, 8] is fp32.  All
/// lanes of a warp call it together.  Lane 4g + t, with g < 8 and t < 4, holds these (row, column) elements:
///   a[0]: (g, 2t), (g, 2t+1)       a[1]: (g+8, 2t), (g+8, 2t+1)
///   a[2]: (g, 2t+8), (g, 2t+9)     a[3]: (g+8, 2t+8), (g+8, 2t+9)
///   b0: (2t, g), (2t+1, g)         b1: (2t+8, g), (2t+9, g)
///   d[0 .. 3]: (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)
/// The last argument only gives the type of A and B.  (PTX ISA, "Matrix fragments for mma.m16n8k16".)
__device__ inline void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Bf16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Fp16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Loads a tile B of multiply_add from a row-major [16, 8] tile in shared memory: `row` is the address of row
/// lane % 16, eight 16-bit elements.
__device__ inline void load_columns(uint32_t& b0, uint32_t& b1, const void* row) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(b0), "=r"(b1)
               : "r"(address)
               : "memory");
}

/// Starts copying 16 bytes from global to shared memory (cp.async), or with `zeros` sets them to 0.
/// end_copy_group closes a group of copies; wait_for_copies waits for the oldest groups.
__device__ inline void copy_async(void* to, const void* from, bool zeros) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = zeros ? 0 : 16;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes)
               : "memory");
}
__device__ inline void end_copy_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most `Pending` of this thread's groups of copies are incomplete.
template <int Pending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

#endif  // CLOVER_CUDA_EMULATION

/// These make the compiler keep a value in a register, where it would otherwise recompute it at each use, or
/// compute early what depends on it: a number, an address in global memory, and one in shared memory.
__device__ __forceinline__ void keep_in_register([[maybe_unused]] int& number) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(number));
#endif
}
__device__ __forceinline__ void keep_in_register([[maybe_unused]] int64_t& number) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+l"(number));
#endif
}
template <class T>
__device__ __forceinline__ void keep_global_address_in_register([[maybe_unused]] T*& address) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+l"(address));
  __builtin_assume(__isGlobal(address));
#endif
}
template <class T>
__device__ __forceinline__ void keep_shared_address_in_register([[maybe_unused]] T*& address) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+l"(address));
  __builtin_assume(__isShared(address));
#endif
}

/// Calls body(T{}), where T is the type of `element`: float, Bf16 or Fp16.
template <class Body>
void with_element(Element element, const Body& body) {
  switch (element) {
    case Element::fp32:
      return body(float{});
    case Element::bf16:
      return body(Bf16{});
    case Element::fp16:
      return body(Fp16{});
  }
}

/// out[index] = x, rounded to `element`, the type of out's numbers.
__device__ inline void store_as(void* out, Element element, int64_t index, float x) {
  switch (element) {
    case Element::fp32:
      return from_float(x, static_cast<float*>(out)[index]);
    case Element::bf16:
      return from_float(x, static_cast<Bf16*>(out)[index]);
    case Element::fp16:
      return from_float(x, static_cast<Fp16*>(out)[index]);
  }
}

/// The sum (or maximum) of x over the lanes of a warp, which every lane gets.  The order of additions is
/// fixed: a butterfly over lanes 16, 8, 4, 2 and 1 apart.
__device__ inline float warp_sum(float x) {
  for (int distance = warp_size / 2; distance > 0; distance /= 2)
    x += __shfl_xor_sync(all_lanes, x, distance);
  return x;
}
__device__ inline float warp_max(float x) {
  for (int distance = warp_size / 2; distance > 0; distance /= 2)
    x = larger(__shfl_xor_sync(all_lanes, x, distance), x);
  return x;
}

/// The same over a block of `Warps` warps, whose results are combined in order, beginning with `identity`.
/// All threads of the block must call it.
template <int Warps, class ReduceWarp, class Combine>
__device__ inline float block_reduce(float x, float identity, const ReduceWarp& reduce_warp,
                                     const Combine& combine) {
  __shared__ float warp_results[Warps];
  x = reduce_warp(x);
  __syncthreads();  // all threads have read the results of the last call
  if (threadIdx.x % warp_size == 0) warp_results[threadIdx.x / warp_size] = x;
  __syncthreads();
  float result = identity;
  for (int warp = 0; warp < Warps; ++warp) result = combine(result, warp_results[warp]);
  return result;
}
template <int Warps>
__device__ inline float block_sum(float x) {
  return block_reduce<Warps>(
      x, 0.0f, [](float a) { return warp_sum(a); }, [](float a, float b) { return a + b; });
}
template <int Warps>
__device__ inline float block_max(float x) {
  return block_reduce<Warps>(
      x, minus_infinity(), [](float a) { return warp_max(a); },
      [](float a, float b) { return larger(b, a); });
}

/// For `count` blocks that share a task and leave partial results in global memory: whether this block is the
/// last one to call it.  The last block can read all partial results.  `arrived` counts the blocks in global
/// memory: 0 before the first call, and again after the last.  All threads of a block must call it.
__device__ inline bool is_last_to_arrive(unsigned* arrived, int count) {
  __shared__ bool last;
  __syncthreads();  // all threads of the block have written their partial results
  if (count == 1) return true;
  if (threadIdx.x == 0) {
    __threadfence();  // other blocks see these results before they see the count rise
    last = atomicAdd(arrived, 1u) + 1 == static_cast<unsigned>(count);
    if (last) *arrived = 0;
    __threadfence();  // the results of blocks that were counted are read after the count
  }
  __syncthreads();
  return last;
}

}  // namespace clover::kernels::cuda
