#pragma once

// Replaces the CUDA compiler and runtime: included before a kernel's source (-include), it lets a C++
// compiler build the kernel.  Each CUDA thread of a block becomes a fiber; all fibers run in one CPU thread.
// The emulation guarantees no more than CUDA does, so that kernels which rely on more fail:
//   - Threads run one after another from barrier to barrier, in an order that differs from block to block.
//   - Shared memory is filled with NaN before a block begins.
//   - Asynchronous copies arrive at once in half of the blocks, and as late as possible in the others.
//   - The program is aborted if lanes of a warp are missing at a collective: __syncwarp, __shfl_sync,
//     __ballot_sync or a tensor core product.
// Functions of kernels/gpu/*.cuh that are written in PTX are defined here with the same meaning.
#define CLOVER_CUDA_EMULATION 1

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#include "kernels/op/gpu_context.h"
#include "tests/support/recording.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __forceinline__ inline

struct dim3 {
  unsigned x, y, z;
  dim3(int64_t of_x = 1, int64_t of_y = 1, int64_t of_z = 1)
      : x(static_cast<unsigned>(of_x)), y(static_cast<unsigned>(of_y)), z(static_cast<unsigned>(of_z)) {}
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

namespace clover::kernels::cuda {

namespace emulation {

/// threadIdx, blockIdx, blockDim and gridDim of a thread.
struct ThreadIndices {
  dim3 thread, block, block_size, grid;
};
constexpr unsigned lanes = 32;
constexpr size_t bytes_per_lane = 64;  // the largest value that a lane passes to a collective

/// The part of a thread's state that kernels read often; the rest is Thread in emulated_threads.h.
struct ThreadContext {
  ThreadIndices indices;
  unsigned lane;              // in its warp
  unsigned collective_count;  // collectives that it has called
  /// u8 [2, lanes, bytes_per_lane], shared by the warp: the values of the lanes in the present collective,
  /// and in the next one, which some lanes may have called already.
  unsigned char* lane_values;
};
extern ThreadContext* current_thread;

inline const ThreadIndices& indices() {
  return current_thread->indices;
}

void block_barrier();  // __syncthreads
/// A collective: waits until every lane of the warp has called it.
void wait_for_warp();
/// A collective that returns the values `mine` of all lanes of the warp; lane l's is at bytes_per_lane * l.
template <class T>
const unsigned char* exchange(const T& mine) {
  static_assert(sizeof mine <= bytes_per_lane);
  unsigned char* const values =
      current_thread->lane_values + current_thread->collective_count++ % 2 * lanes * bytes_per_lane;
  std::memcpy(values + bytes_per_lane * current_thread->lane, &mine, sizeof mine);
  wait_for_warp();
  return values;
}
void* shared_memory();
/// cp.async of 16 bytes to shared memory (kernels/gpu/device.cuh).  `zeros`: of zeros; `from` is not read.
void copy_async(void* to, const void* from, bool zeros);
void end_copy_group();
void wait_for_copies(int pending);
void wait_for_prior_kernel();

// TMA, mbarriers and clusters: kernels/gpu/async_copies.cuh documents these functions.

/// An mbarrier in shared memory.
struct Barrier {
  uint16_t arrivals, missing;  // arrivals that end a phase, and those that the present phase still needs
  int32_t bytes : 31;          // bytes of copies that the present phase still needs
  uint32_t phase : 1;          // number of the present phase modulo 2
};
static_assert(sizeof(Barrier) == 8);
/// A matrix in global memory, and the size of the boxes that copy_box copies from it.
struct TensorMap {
  const unsigned char* first;  // address of the first element
  int64_t rows, columns, row_bytes, element_bytes;
  int box_rows, box_row_bytes;
  bool swizzled;  // whether boxes in shared memory are swizzled
};
void init_barrier(Barrier* barrier, int arrivals);
/// Arrives, and makes the present phase wait for `bytes` more bytes of copies.
void arrive(Barrier* barrier, int bytes);
void wait_for_phase(Barrier* barrier, unsigned phase);
void copy_box(void* to, const TensorMap& map, int column, int row, Barrier* barrier);
float4 read_from_block(const float4* own, int block);
void arrive_at_cluster();
void wait_for_cluster();
void sync_threads(int number, int count);

// Products of tensor cores.  Operands and sums are split among the lanes as the PTX ISA says ("Matrix
// fragments for mma.m16n8k16").

/// A 16-bit floating-point format: bf16 or fp16.
struct NumberFormat {
  float (*to_float)(uint16_t);
  int min_exponent;   // of normal numbers
  int mantissa_bits;  // stored ones
};
/// d += a b of one warp, d [16, 8], a [16, 16], b [16, 8] (kernels/gpu/device.cuh).
void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                  const NumberFormat& format);
// wgmma, products of a warpgroup (kernels/gpu/warpgroup.cuh and warpgroup_boxes.cuh).  Each thread passes its
// own part of d and a.  Operands in shared memory are given by the address of their first element, and are
// swizzled as copy_box writes them.
void begin_products();  // wgmma.fence
/// d += a b^T: d [64, 8 tiles], a [64, 16], b [8 tiles, 16] in shared memory.
void begin_multiply(float (*d)[4], const uint32_t (&a)[4], uintptr_t b, int tiles,
                    const NumberFormat& format);
/// d = left right^T, or += if `adds`: d [64, 64], left and right [64, 16] in shared memory.
void begin_multiply_boxes(float (*d)[4], uintptr_t left, uintptr_t right, bool adds,
                          const NumberFormat& format);
/// d = a right, or += if `adds`: d [64, 64], a [64, 16], right [16, 64] in shared memory.
void begin_multiply_by_box(float (*d)[4], const uint32_t (&a)[4], uintptr_t right, bool adds,
                           const NumberFormat& format);
void end_product_group();
void wait_for_products(int pending);

/// Runs `thread` as every thread of every block, one cluster after another.  `cluster`: blocks of a cluster,
/// which are neighbours along x; `threads`: of a block; `shared_bytes`: shared memory of a block.
void run(dim3 grid, int cluster, int threads, int64_t shared_bytes, const std::function<void()>& thread);

}  // namespace emulation

template <int Blocks, class... Parameters, class... Arguments>
void launch_clusters(const char*, void (*kernel)(Parameters...), dim3 grid, int threads, int64_t shared_bytes,
                     Stream, const Arguments&... arguments) {
  test::run_or_record(
      [=] { emulation::run(grid, Blocks, threads, shared_bytes, [&] { kernel(arguments...); }); });
}
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, int threads, int64_t shared_bytes,
            Stream stream, const Arguments&... arguments) {
  launch_clusters<1>(name, kernel, grid, threads, shared_bytes, stream, arguments...);
}

template <class T>
T* shared_memory() {
  return static_cast<T*>(emulation::shared_memory());
}
inline unsigned char* aligned_shared_memory() {
  return static_cast<unsigned char*>(emulation::shared_memory());
}

using emulation::arrive_at_cluster, emulation::wait_for_cluster, emulation::read_from_block;
using emulation::Barrier, emulation::TensorMap;
using emulation::copy_box, emulation::init_barrier, emulation::wait_for_phase;
inline void fence_barrier_init() {}
inline void arrive(Barrier* barrier) {
  emulation::arrive(barrier, 0);
}
inline void arrive_and_expect(Barrier* barrier, int bytes) {
  emulation::arrive(barrier, bytes);
}
inline uint64_t evict_first_policy() {
  return 0;
}
inline void copy_box_with_policy(void* to, const TensorMap& map, int column, int row, Barrier* barrier,
                                 uint64_t) {
  copy_box(to, map, column, row, barrier);
}
inline void arrive_at_cluster_relaxed() {
  arrive_at_cluster();
}
template <int Threads>
void sync_threads(int number) {
  emulation::sync_threads(number, Threads);
}
inline TensorMap map_of_rows(const char*, const void* first, int64_t rows, int64_t columns, int64_t row_bytes,
                             int box_rows) {
  return {static_cast<const unsigned char*>(first), rows, columns, row_bytes, 2, box_rows, 128, true};
}
inline TensorMap map_of_bytes(const char*, const void* first, int64_t rows, int64_t row_bytes, int box_bytes,
                              int box_rows) {
  return {static_cast<const unsigned char*>(first),
          rows,
          row_bytes / 8,
          row_bytes,
          8,
          box_rows,
          box_bytes,
          false};
}

inline void load_columns(uint32_t& b0, uint32_t& b1, const void* row) {
  const unsigned char* row_addresses = emulation::exchange(row);
  const unsigned lane = emulation::current_thread->lane, column = lane / 4, first = lane % 4 * 2;
  const auto element = [&](unsigned row_index) {
    const uint16_t* address;
    std::memcpy(&address, row_addresses + emulation::bytes_per_lane * row_index, sizeof address);
    return static_cast<uint32_t>(address[column]);
  };
  b0 = element(first) | element(first + 1) << 16;
  b1 = element(8 + first) | element(8 + first + 1) << 16;
}

inline void copy_async(void* to, const void* from, bool zeros) {
  emulation::copy_async(to, from, zeros);
}
inline void end_copy_group() {
  emulation::end_copy_group();
}
template <int Pending>
void wait_for_copies() {
  emulation::wait_for_copies(Pending);
}
inline int64_t shared_bytes_per_block() {
  return int64_t{227} << 10;  // of an H100
}
/// A different number at each call: results must not depend on how many multiprocessors share the work.
inline int multiprocessors() {
  constexpr int counts[] = {132, 1, 14, 40, 3};
  static int calls = 0;
  return counts[calls++ % 5];
}
/// A different number at each call, sometimes below the number of tiles.
template <int Blocks, class Kernel>
int max_active_clusters(Kernel, int, int64_t) {
  const int clusters = multiprocessors() / Blocks;
  return clusters > 0 ? clusters : 1;
}
inline bool has_warpgroup_products() {
  return true;
}
inline void launch_dependents() {}
inline void wait_for_prior_kernel() {
  emulation::wait_for_prior_kernel();
}

}  // namespace clover::kernels::cuda

#define threadIdx (::clover::kernels::cuda::emulation::indices().thread)
#define blockIdx (::clover::kernels::cuda::emulation::indices().block)
#define blockDim (::clover::kernels::cuda::emulation::indices().block_size)
#define gridDim (::clover::kernels::cuda::emulation::indices().grid)

inline void __syncthreads() {
  clover::kernels::cuda::emulation::block_barrier();
}
inline void __syncwarp() {
  clover::kernels::cuda::emulation::wait_for_warp();
}

template <class T>
T __shfl_sync(unsigned, T mine, int lane) {
  using namespace clover::kernels::cuda;
  T other;
  std::memcpy(&other, emulation::exchange(mine) + emulation::bytes_per_lane * (lane % 32), sizeof other);
  return other;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T mine, int lane_mask) {
  const auto lane = static_cast<int>(clover::kernels::cuda::emulation::current_thread->lane);
  return __shfl_sync(mask, mine, lane ^ lane_mask);
}

// Atomic as they are, since only one fiber runs at a time.
template <class T>
T atomicAdd(T* to, T addend) {
  const T before = *to;
  *to += addend;
  return before;
}

template <class T>
T atomicMax(T* to, T other) {
  const T before = *to;
  if (other > before) *to = other;
  return before;
}

template <class T>
T __ldcg(const T* from) {
  return *from;
}
inline void __threadfence() {}

inline unsigned __reduce_max_sync(unsigned, unsigned mine) {
  using namespace clover::kernels::cuda;
  const unsigned char* values = emulation::exchange(mine);
  unsigned largest = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    unsigned other;
    std::memcpy(&other, values + emulation::bytes_per_lane * lane, sizeof other);
    if (other > largest) largest = other;
  }
  return largest;
}

inline unsigned __ballot_sync(unsigned, bool mine) {
  using namespace clover::kernels::cuda;
  const unsigned char vote = mine ? 1 : 0;
  const unsigned char* votes = emulation::exchange(vote);
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    ballot |= static_cast<unsigned>(votes[emulation::bytes_per_lane * lane]) << lane;
  return ballot;
}

#include "kernels/gpu/numbers.h"

namespace clover::kernels::cuda {

constexpr emulation::NumberFormat format_of(Bf16) {
  return {[](uint16_t bits) { return to_float(Bf16{bits}); }, -126, 7};
}
constexpr emulation::NumberFormat format_of(Fp16) {
  return {[](uint16_t bits) { return to_float(Fp16{bits}); }, -14, 10};
}
template <class T>
void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, T) {
  emulation::multiply_add(d, a, b0, b1, format_of(T{}));
}

// A wgmma product is computed only when it is waited for, so that a kernel which overwrites its operands
// before that fails.
inline void fence_async_proxy() {}
inline void begin_products() {
  emulation::begin_products();
}
inline uint64_t describe_rows(const void* first) {
  return reinterpret_cast<uintptr_t>(first);
}
template <int Tiles, class T>
void begin_multiply(float (&sum)[Tiles][4], const uint32_t (&a)[4], uint64_t box, int step, T) {
  emulation::begin_multiply(sum, a, box + 32 * step, Tiles, format_of(T{}));
}
template <class T>
void begin_multiply_boxes(float (&sum)[8][4], uint64_t left, uint64_t right, int step, bool adds, T) {
  emulation::begin_multiply_boxes(sum, left + 32 * step, right + 32 * step, adds, format_of(T{}));
}
template <class T>
void begin_multiply_by_box(float (&sum)[8][4], const uint32_t (&a)[4], uint64_t right, int step, bool adds,
                           T) {
  emulation::begin_multiply_by_box(sum, a, right + 16 * 128 * step, adds, format_of(T{}));
}
inline uint64_t box_after(uint64_t box, int boxes) {
  return box + 8192 * boxes;
}
template <int Registers>
void give_registers() {}
template <int Registers>
void take_registers() {}
inline float exp2_approx(float x) {
  return std::exp2(x);
}
inline float fused_multiply_add(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline void end_product_group() {
  emulation::end_product_group();
}
template <int Pending>
void wait_for_products() {
  emulation::wait_for_products(Pending);
}
inline void read_after_wait(float&) {}
inline void keep_operands(const uint32_t (&)[4], bool, const void*) {}

}  // namespace clover::kernels::cuda
