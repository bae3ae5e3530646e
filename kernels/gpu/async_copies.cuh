#pragma once

#include "kernels/gpu/device.cuh"

#if !defined(CLOVER_CUDA_EMULATION)
#include <cuda.h>
#endif

// Copies to shared memory that a thread of sm_90 starts and a barrier in shared memory counts: in one piece,
// or a box of a matrix, which lies there as tensor cores read it.  (PTX ISA, "mbarrier" and "cp.async.bulk".)
namespace clover::kernels::cuda {

/// How a box of a matrix lies in shared memory: rows of 128 bytes one after the other from an address that is
/// a multiple of this, the 16 bytes number c of row r at place c ^ r % 8 of the row.
constexpr int swizzled_alignment = 1024, swizzled_row_bytes = 128;
/// Where that is, in bytes from the box.
CLOVER_BOTH int swizzled_place(int row, int sixteen) {
  return row * swizzled_row_bytes + (sixteen ^ row % 8) * 16;
}

#if !defined(CLOVER_CUDA_EMULATION)

/// A matrix in global memory, as the copy engine knows it: a kernel takes it as `const __grid_constant__`.
using TensorMap = CUtensorMap;

/// Shared memory where boxes may lie; a kernel that asks for it has no other.
__device__ __forceinline__ unsigned char* aligned_shared_memory() {
  extern __shared__ __align__(1024) unsigned char clover_aligned_memory[];
  return clover_aligned_memory;
}

/// Counts arrivals of threads and bytes of copies; a phase ends when all have come, and the next begins.
using Barrier = uint64_t;

__device__ __forceinline__ uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

__device__ __forceinline__ void init_barrier(Barrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}
/// The copy engine can see barriers that this thread has made; the other threads after a block barrier.
__device__ __forceinline__ void show_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/// Arrives, and so many bytes of copies are to come in this phase.
__device__ __forceinline__ void arrive_and_expect(Barrier* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
/// Until the phase number `phase` has ended; it must be the present one or the last.
__device__ __forceinline__ void wait_for_phase(Barrier* barrier, unsigned phase) {
  asm volatile(
      "{\n.reg .pred ended;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
      "@!ended bra again;\n}" ::"r"(shared_address(barrier)),
      "r"(phase & 1)
      : "memory");
}

/// What is read once should not displace what is read again from the second-level cache.
__device__ __forceinline__ uint64_t read_once() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// The box of the map whose first element stands in row `row` and column `column`; zeros beyond the matrix.
__device__ __forceinline__ void copy_box(void* to, const TensorMap& map, int column, int row,
                                         Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3}], "
      "[%4];" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}

/// The same, with a policy.
__device__ __forceinline__ void copy_box_once(void* to, const TensorMap& map, int column, int row,
                                              Barrier* barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

/// Blocks of a cluster, side by side along x, read each other's shared memory.  It holds compilers from
/// nothing: stores to other memory may stand behind it.
__device__ __forceinline__ float4 read_of_block(const float4* own, int block) {
  uint32_t address;
  float4 read;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(own)), "r"(block));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(read.x), "=f"(read.y), "=f"(read.z), "=f"(read.w)
               : "r"(address));
  return read;
}
/// What this thread has written to shared memory can be read by those that wait; all threads of the cluster
/// that have not ended must call both.
__device__ __forceinline__ void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
/// The same where nothing that this thread has written is waited for.
__device__ __forceinline__ void arrive_at_cluster_with_nothing() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

/// A barrier of `Threads` threads of a block, whole warps, by its number (0 is __syncthreads').
template <int Threads>
__device__ __forceinline__ void sync_threads(int number) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(Threads) : "memory");
}

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                                 CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill);

/// Of the driver, or null where it is older than sm_90.
inline EncodeTiled encode_tiled() {
  static const EncodeTiled function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status{};
    constexpr unsigned since_cuda = 12000;
    const cudaError_t asked = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, since_cuda,
                                                               cudaEnableDefault, &status);
    return asked == cudaSuccess && status == cudaDriverEntryPointSuccess
               ? reinterpret_cast<EncodeTiled>(found)
               : nullptr;
  }();
  return function;
}

/// `rows` rows of `columns` numbers of 2 or 8 bytes, `row_bytes` apart; a box is box_columns by box_rows of
/// them.
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

/// A matrix [rows, columns] of 16-bit numbers, row after row `row_bytes` apart (a multiple of 16, as is
/// `first`), in boxes of 64 columns by `box_rows` (at most 256), swizzled.  `name`: of the kernel that wants
/// it.
inline TensorMap map_of_rows(const char* name, const void* first, int64_t rows, int64_t columns,
                             int64_t row_bytes, int box_rows) {
  return map_of(name, first, CU_TENSOR_MAP_DATA_TYPE_UINT16, rows, columns, row_bytes, box_rows,
                swizzled_row_bytes / 2, CU_TENSOR_MAP_SWIZZLE_128B);
}
/// `rows` rows of `row_bytes` bytes (a multiple of 16), one behind the other, in boxes of box_bytes (at most
/// 2048) by `box_rows`, as they are.  Its columns are of 8 bytes.
inline TensorMap map_of_bytes(const char* name, const void* first, int64_t rows, int64_t row_bytes,
                              int box_bytes, int box_rows) {
  return map_of(name, first, CU_TENSOR_MAP_DATA_TYPE_INT64, rows, row_bytes / 8, row_bytes, box_rows,
                box_bytes / 8, CU_TENSOR_MAP_SWIZZLE_NONE);
}

#endif  // CLOVER_CUDA_EMULATION

}  // namespace clover::kernels::cuda
