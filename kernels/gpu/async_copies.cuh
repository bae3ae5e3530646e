#pragma once

#include "kernels/gpu/device.cuh"

#if !defined(CLOVER_CUDA_EMULATION)
#include <cuda.h>
#endif

// Asynchronous copies to shared memory whose completion an mbarrier counts (sm_90): bulk copies, and copies
// of a box of a matrix by the tensor memory accelerator (TMA), swizzled as tensor cores read it. (PTX ISA,
// "mbarrier" and "cp.async.bulk.tensor".)
namespace clover::kernels::cuda {

/// How a box of a matrix lies in shared memory (TMA's 128-byte swizzle): rows of 128 bytes one after the
/// other, from an address that is a multiple of swizzled_alignment. The 16 bytes number c of row r are at
/// place c ^ r % 8 of the row.
constexpr int swizzled_alignment = 1024, swizzled_row_bytes = 128;
/// The offset in bytes of such 16 bytes from the start of the box.
CLOVER_HOST_DEVICE int swizzled_place(int row, int sixteen) {
  return row * swizzled_row_bytes + (sixteen ^ row % 8) * 16;
}

#if !defined(CLOVER_CUDA_EMULATION)

/// A tensor map: a matrix in global memory as TMA knows it. A kernel takes it as `const __grid_constant__`.
using TensorMap = CUtensorMap;

/// Dynamic shared memory aligned for boxes. A kernel that uses it has no other dynamic shared memory.
__device__ __forceinline__ unsigned char* aligned_shared_memory() {
  extern __shared__ __align__(1024) unsigned char clover_aligned_memory[];
  return clover_aligned_memory;
}

/// An mbarrier: it counts arrivals of threads and bytes of copies. When all have come the phase ends and the
/// next one begins.
using Barrier = uint64_t;

__device__ __forceinline__ uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

__device__ __forceinline__ void init_barrier(Barrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}
/// Makes barriers that this thread has initialised visible to TMA; the other threads see them after a block
/// barrier.
__device__ __forceinline__ void show_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/// Arrives, and adds `bytes` to the bytes of copies that this phase waits for.
__device__ __forceinline__ void arrive_and_expect(Barrier* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
/// Waits until phase number `phase` has ended, which must be the present one or the one before.
__device__ __forceinline__ void wait_for_phase(Barrier* barrier, unsigned phase) {
  asm volatile(
      "{\n.reg .pred ended;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
      "@!ended bra again;\n}" ::"r"(shared_address(barrier)),
      "r"(phase & 1)
      : "memory");
}

/// A cache policy for data that is read once: it should not displace other data from the second-level cache.
__device__ __forceinline__ uint64_t read_once() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// Copies the box whose first element is in row `row` and column `column` of the matrix; elements beyond the
/// matrix are zeros.
__device__ __forceinline__ void copy_box(void* to, const TensorMap& map, int column, int row,
                                         Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3}], "
      "[%4];" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}

/// The same with a cache policy.
__device__ __forceinline__ void copy_box_once(void* to, const TensorMap& map, int column, int row,
                                              Barrier* barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

/// Reads shared memory of another block of the cluster, whose blocks are numbered along x. `own` is the
/// address in this block. The compiler may still move stores to other memory behind it.
__device__ __forceinline__ float4 read_of_block(const float4* own, int block) {
  uint32_t address;
  float4 read;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(own)), "r"(block));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(read.x), "=f"(read.y), "=f"(read.z), "=f"(read.w)
               : "r"(address));
  return read;
}
/// The two halves of a cluster barrier: what this thread wrote to shared memory before it arrived can be read
/// by threads that have waited. All threads of the cluster that have not ended must call both.
__device__ __forceinline__ void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
/// The same without that promise: no thread reads what this one has written.
__device__ __forceinline__ void arrive_at_cluster_with_nothing() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

/// Named barrier `number` of `Threads` threads of a block, whole warps (0 is __syncthreads').
template <int Threads>
__device__ __forceinline__ void sync_threads(int number) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(Threads) : "memory");
}

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                                 CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill);

/// The driver's cuTensorMapEncodeTiled, or null where the driver is older than sm_90.
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

/// The tensor map of `rows` rows of `columns` numbers of 2 or 8 bytes, `row_bytes` apart, in boxes of
/// box_rows by box_columns.
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

/// The tensor map of a matrix [rows, columns] of 16-bit numbers whose rows are `row_bytes` apart (a multiple
/// of 16, as is `first`), in swizzled boxes of `box_rows` (at most 256) by 64 columns. `name`: of the kernel,
/// for errors.
inline TensorMap map_of_rows(const char* name, const void* first, int64_t rows, int64_t columns,
                             int64_t row_bytes, int box_rows) {
  return map_of(name, first, CU_TENSOR_MAP_DATA_TYPE_UINT16, rows, columns, row_bytes, box_rows,
                swizzled_row_bytes / 2, CU_TENSOR_MAP_SWIZZLE_128B);
}
/// The tensor map of `rows` rows of `row_bytes` bytes (a multiple of 16), one after the other, in boxes of
/// `box_rows` by box_bytes (at most 2048), not swizzled. Its columns are 8 bytes wide.
inline TensorMap map_of_bytes(const char* name, const void* first, int64_t rows, int64_t row_bytes,
                              int box_bytes, int box_rows) {
  return map_of(name, first, CU_TENSOR_MAP_DATA_TYPE_INT64, rows, row_bytes / 8, row_bytes, box_rows,
                box_bytes / 8, CU_TENSOR_MAP_SWIZZLE_NONE);
}

#endif  // CLOVER_CUDA_EMULATION

}  // namespace clover::kernels::cuda
