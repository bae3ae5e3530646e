#pragma once

// The CUDA that kernels are written in: launches, the few instructions without a C++ spelling, and reductions
// in a fixed order.  tests/support/cuda_emulation.h stands in for the compiler and the runtime where a kernel
// is compiled as C++ and run on the CPU.
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

/// What the launch of a kernel needs to know of the current device, queried once.
struct LaunchSettings {
  int64_t shared_bytes_a_block = 0;  // at most
  int multiprocessors = 1;
  bool is_sm_90 = false;
  std::map<const void*, bool> overlaps;  // by kernel: whether it may start while the one before runs, which
                                         // takes code for sm_90 or later
  std::map<const void*, int> most_clusters;  // that run at once

  static LaunchSettings& of_device() {
    thread_local std::map<int, LaunchSettings> known;
    int device = 0, bytes = 0, major = 0, minor = 0;
    cudaGetDevice(&device);
    const auto [found, first] = known.try_emplace(device);
    if (!first) return found->second;
    if (cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess)
      found->second.shared_bytes_a_block = bytes;
    cudaDeviceGetAttribute(&found->second.multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    found->second.is_sm_90 = major == 9 && minor == 0;
    return found->second;
  }

  /// Grants `kernel` as much shared memory as a block can have, the first time.  All kernels ask for the same
  /// split between that and the L1 cache: a multiprocessor changes it only when nothing runs there, so that
  /// no two kernels could overlap.
  cudaError_t prepare(const void* kernel, bool& may_overlap) {
    const auto found = overlaps.find(kernel);
    if (found != overlaps.end()) {
      may_overlap = found->second;
      return cudaSuccess;
    }
    cudaFuncAttributes about{};
    const cudaError_t asked = cudaFuncGetAttributes(&about, kernel);
    if (asked != cudaSuccess) return asked;
    const cudaError_t split = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                                   cudaSharedmemCarveoutMaxShared);
    if (split != cudaSuccess) return split;
    const int64_t grant = shared_bytes_a_block - static_cast<int64_t>(about.sharedSizeBytes);
    const cudaError_t granted =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grant));
    if (granted != cudaSuccess) return granted;
    may_overlap = overlaps[kernel] = about.ptxVersion >= 90;
    return cudaSuccess;
  }
};

/// Shared memory that a block of the current device can have.
inline int64_t shared_bytes_a_block() {
  return LaunchSettings::of_device().shared_bytes_a_block;
}

inline int multiprocessors() {
  return LaunchSettings::of_device().multiprocessors;
}

/// Whether the GPU has wgmma, products by warpgroups of four warps (warpgroup.cuh): sm_90 alone.
/// CLOVER_NO_WARPGROUP=1 does without, where somebody looks for a fault.
inline bool has_warpgroup_products() {
  static const bool wanted = std::getenv("CLOVER_NO_WARPGROUP") == nullptr;
  return wanted && LaunchSettings::of_device().is_sm_90;
}

/// Launches `kernel` on `stream` with Programmatic Dependent Launch (CUDA programming guide): it may start
/// while the kernel before it still runs, so each thread calls `wait_for_prior_kernel` before it reads what
/// another kernel has written and before it writes anything itself.
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
  cudaGetLastError();  // told here, not to whoever asks next
  launch_failed(name, cudaGetErrorString(result));
}

/// The same for a kernel that is declared with __cluster_dims__(Blocks, 1, 1).
template <int Blocks, class... Parameters, class... Arguments>
void launch_clusters(const char* name, void (*kernel)(Parameters...), dim3 grid, int threads,
                     int64_t shared_bytes, Stream stream, const Arguments&... arguments) {
  launch(name, kernel, grid, threads, shared_bytes, stream, arguments...);
}

/// How many such clusters can run at once on the current device.
template <int Blocks, class... Parameters>
int most_clusters(void (*kernel)(Parameters...), int threads, int64_t shared_bytes) {
  LaunchSettings& settings = LaunchSettings::of_device();
  const auto* code = reinterpret_cast<const void*>(kernel);
  const auto found = settings.most_clusters.find(code);
  if (found != settings.most_clusters.end()) return found->second;
  bool may_overlap = false;
  int most = 0;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(Blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  if (settings.prepare(code, may_overlap) != cudaSuccess ||
      cudaOccupancyMaxActiveClusters(&most, kernel, &config) != cudaSuccess)
    cudaGetLastError();  // the launch itself will say what is wrong
  return settings.most_clusters[code] = most > 0 ? most : 1;
}

/// Lets the next kernel of the stream start, on the multiprocessors that this one leaves free, once all
/// blocks have called it (griddepcontrol.launch_dependents).
__device__ inline void launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Waits until the kernels before this one are done and what they wrote can be read (griddepcontrol.wait).
__device__ inline void wait_for_prior_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <class T>
__device__ inline T* shared_memory() {
  extern __shared__ __align__(16) unsigned char clover_shared_memory[];
  return reinterpret_cast<T*>(clover_shared_memory);
}

/// d += a b for a 16 x 16 tile `a` of 16-bit floats and a 16 x 8 tile `b`, summed in fp32.  Lane 4g + t holds
///   a: rows g, g+8, g, g+8; columns 2t, 2t+1 in the first two words, 2t+8, 2t+9 in the others
///   b: rows 2t, 2t+1, then 2t+8, 2t+9, of column g
///   d: (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)
/// (PTX ISA, "Matrix fragments for mma.m16n8k16".)
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

/// A 16 x 8 tile `b` of multiply_add out of 16 rows of shared memory, `row` being the address of this lane's
/// (lane % 16) eight elements.
__device__ inline void load_columns(uint32_t& b0, uint32_t& b1, const void* row) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(b0), "=r"(b1)
               : "r"(address)
               : "memory");
}

/// Copies 16 bytes to shared memory asynchronously (cp.async), or fills them with zeros.  Copies are waited
/// for in groups, in order.
__device__ inline void copy_async(void* to, const void* from, bool zeros) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = zeros ? 0 : 16;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes)
               : "memory");
}
__device__ inline void end_copy_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most `Pending` of this thread's groups are incomplete.
template <int Pending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

#endif  // CLOVER_CUDA_EMULATION

/// Keep a number or an address in registers, which the compiler would rather work out at each use.
__device__ __forceinline__ void keep([[maybe_unused]] int& number) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(number));
#endif
}
template <class T>
__device__ __forceinline__ void keep_global([[maybe_unused]] T*& address) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+l"(address));
  __builtin_assume(__isGlobal(address));
#endif
}
template <class T>
__device__ __forceinline__ void keep_shared([[maybe_unused]] T*& address) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+l"(address));
  __builtin_assume(__isShared(address));
#endif
}

/// body(T{}) for the element's type.
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

/// Every lane gets the warp's sum (or its largest value), which is always added up in the same tree.
__device__ inline float warp_sum(float x) {
  for (int apart = warp_size / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(all_lanes, x, apart);
  return x;
}
__device__ inline float warp_max(float x) {
  for (int apart = warp_size / 2; apart > 0; apart /= 2) x = larger(__shfl_xor_sync(all_lanes, x, apart), x);
  return x;
}

/// The same for a block of `Warps` warps; all of its threads must call it.
template <int Warps, class Warp, class Two>
__device__ inline float block_reduce(float x, float nothing, const Warp& of_warp, const Two& of_two) {
  __shared__ float parts[Warps];
  x = of_warp(x);
  __syncthreads();  // the last call's parts have been read
  if (threadIdx.x % warp_size == 0) parts[threadIdx.x / warp_size] = x;
  __syncthreads();
  float all = nothing;
  for (int warp = 0; warp < Warps; ++warp) all = of_two(all, parts[warp]);
  return all;
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

/// Whether this is the last of `count` blocks that share a task and leave partial results in global memory;
/// the last one sees all of them.  `arrived` is 0 before the first and after the last; all threads must call
/// it.
__device__ inline bool is_last_to_arrive(unsigned* arrived, int count) {
  __shared__ bool last;
  __syncthreads();  // behind the partial results of all threads ..
  if (count == 1) return true;
  if (threadIdx.x == 0) {
    __threadfence();  // .. comes the word that they are there
    last = atomicAdd(arrived, 1u) + 1 == static_cast<unsigned>(count);
    if (last) *arrived = 0;
    __threadfence();  // the others' partial results, behind that word
  }
  __syncthreads();
  return last;
}

}  // namespace clover::kernels::cuda
