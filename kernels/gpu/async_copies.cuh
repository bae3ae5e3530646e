#pragma once

#include "kernels/gpu/device.cuh"

#if !defined(CLOVER_CUDA_EMULATION)
#include <cuda.h>
#endif

// sm_90: the tensor memory accelerator (TMA) copies a box, a rectangle of a matrix in global memory, to
// shared memory, while threads go on. An mbarrier counts its bytes. (PTX ISA, "mbarrier" and
// "cp.async.bulk.tensor".)
namespace clover::kernels::cuda {

/// The layout of a swizzled box in shared memory (TMA's 128-byte swizzle, which tensor cores read): rows of
/// 128 bytes, one after the other, from an address that is a multiple of swizzled_alignment bytes. A row has
/// eight chunks of 16 bytes; chunk c of row r is at position c ^ (r % 8) of the row.
constexpr int swizzled_alignment = 1024, swizzled_row_bytes = 128;
/// The offset of a chunk from the start of the box, in bytes.
CLOVER_HOST_DEVICE int swizzled_offset(int row, int chunk) {
  return row * swizzled_row_bytes + (chunk ^ row % 8) * 16;
}

#if !defined(CLOVER_CUDA_EMULATION)

/// TMA's description of a matrix in global memory and of its boxes (map_of_rows, map_of_bytes). A kernel's
/// parameter of this type must be `const __grid_constant__`.
using TensorMap = CUtensorMap;

/// The kernel's dynamic shared memory, aligned for boxes. Such a kernel must not call shared_memory as well.
__device__ __forceinline__ unsigned char* aligned_shared_memory() {
  extern __shared__ __align__(1024) unsigned char clover_aligned_memory[];
  return clover_aligned_memory;
}

/// An mbarrier. A phase of it ends, and the next one begins, when the expected threads have arrived and the
/// expected bytes have been copied. Phases are numbered from 0.
using Barrier = uint64_t;

/// A shared memory pointer as the 32-bit address that PTX instructions take.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// `arrivals`: how many arrivals of threads end a phase.
__device__ __forceinline__ void init_barrier(Barrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}
/// Makes barriers that this thread has initialised visible to TMA. The other threads of the block see them
/// after a __syncthreads.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/// Counts one arrival, and does not wait.
__device__ __forceinline__ void arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/// Arrives, and makes the present phase wait for `bytes` more bytes of copies.
__device__ __forceinline__ void arrive_and_expect(Barrier* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
/// Waits until phase number `phase` has ended. It must be the present phase or the one before.
__device__ __forceinline__ void wait_for_phase(Barrier* barrier, unsigned phase) {
  asm volatile(
      "{\n.reg .pred ended;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
      "@!ended bra again;\n}" ::"r"(shared_address(barrier)),
      "r"(phase & 1)
      : "memory");
}

/// A cache policy for data that is read once: it should not evict other data from the L2 cache.
__device__ __forceinline__ uint64_t evict_first_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// Starts copying the box whose first element is at row `row` and column `column` of the matrix to shared
/// memory at `to`; `barrier` counts its bytes. Elements beyond the matrix are zeros, which count as well.
__device__ __forceinline__ void copy_box(void* to, const TensorMap& map, int column, int row,
                                         Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3}], "
      "[%4];" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}

/// The same with a cache policy for the data in L2.
__device__ __forceinline__ void copy_box_with_policy(void* to, const TensorMap& map, int column, int row,
                                                     Barrier* barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

/// Reads shared memory of block number `block` (along x) of the cluster. `own` is the address of the same
/// variable in this block. The compiler may reorder this read with stores.
__device__ __forceinline__ float4 read_from_block(const float4* own, int block) {
  uint32_t address;
  float4 read;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(own)), "r"(block));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(read.x), "=f"(read.y), "=f"(read.z), "=f"(read.w)
               : "r"(address));
  return read;
}
/// A barrier of all threads of the cluster, in two halves: arrive_at_cluster, then wait_for_cluster. Threads
/// that have waited can read what others wrote to shared memory before they arrived. All threads that have
/// not exited must call both.
__device__ __forceinline__ void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
/// Arrives without making this thread's writes visible to other threads.
__device__ __forceinline__ void arrive_at_cluster_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

/// Waits for `Threads` threads of the block, whole warps, at the named barrier `number` (1 to 15;
/// __syncthreads uses 0).
template <int Threads>
__device__ __forceinline__ void sync_threads(int number) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(Threads) : "memory");
}

/// The type of cuTensorMapEncodeTiled.
using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                                 CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill);

/// The driver's cuTensorMapEncodeTiled, or null if the driver is too old to have it.
inline EncodeTiled encode_tiled() {
  static const EncodeTiled function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status{};
    constexpr unsigned min_cuda_version = 12000;
    const cudaError_t result = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                                min_cuda_version, cudaEnableDefault, &status);
    return result == cudaSuccess && status == cudaDriverEntryPointSuccess
               ? reinterpret_cast<EncodeTiled>(found)
               : nullptr;
  }();
  return function;
}

/// The tensor map of a matrix [rows, columns] of `type` that starts at `first` and whose rows are `row_bytes`
/// apart, in boxes [box_rows, box_columns]. `name` is the kernel's, for errors.
inline TensorMap map_of(const char* name, const void* first, CUtensorMapDataType type, int64_t rows,
                        int64_t columns, int64_t row_bytes, int box_rows, int box_columns,
                        CUtensorMapSwizzle swizzle) {
  TensorMap map;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)},
                   strides[] = {static_cast<cuuint64_t>(row_bytes)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows)},
                   steps[] = {1, 1};
  if (encode_tiled() == nullptr) launch_failed(name, "the driver has no cuTensorMapEncodeTiled");
  const CUresult result = encode_tiled()(
      &map, type, 2, const_cast<void*>(first), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) launch_failed(name, "a matrix can't be described to the copy engine");
  return map;
}

/// The same for 16-bit numbers in swizzled boxes of `box_rows` (at most 256) by 64 columns. `first` and
/// `row_bytes` are multiples of 16 bytes.
inline TensorMap map_of_rows(const char* name, const void* first, int64_t rows, int64_t columns,
                             int64_t row_bytes, int box_rows) {
  return map_of(name, first, CU_TENSOR_MAP_DATA_TYPE_UINT16, rows, columns, row_bytes, box_rows,
                swizzled_row_bytes / 2, CU_TENSOR_MAP_SWIZZLE_128B);
}
/// The tensor map of `rows` contiguous rows of `row_bytes` bytes (a multiple of 16), in boxes of `box_rows`
/// rows by `box_bytes` bytes (at most 2048) that are not swizzled. Its columns, as copy_box counts them, are
/// 8 bytes wide.
inline TensorMap map_of_bytes(const char* name, const void* first, int64_t rows, int64_t row_bytes,
                              int box_bytes, int box_rows) {
  return map_of(name, first, CU_TENSOR_MAP_DATA_TYPE_INT64, rows, row_bytes / 8, row_bytes, box_rows,
                box_bytes / 8, CU_TENSOR_MAP_SWIZZLE_NONE);
}

#endif  // CLOVER_CUDA_EMULATION

}  // namespace clover::kernels::cuda
