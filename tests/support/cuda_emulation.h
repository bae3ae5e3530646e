#pragma once

// Stands in for the CUDA compiler and runtime: included before a kernel's source (-include), it lets a C++
// compiler build it, and each thread of a block becomes a fiber of one CPU thread.  What the language
// promises is kept and no more: threads run in turn from barrier to barrier, in an order that changes from
// block to block, shared memory begins as NaN, asynchronous copies arrive at once or only when they are
// waited for, and a warp that parts at a collective is an error.
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

struct Place {
  dim3 thread, block, block_size, grid;
};
constexpr unsigned lanes = 32;
constexpr size_t bytes_a_lane = 64;  // of what a lane brings to a collective, at most

/// What kernels ask for in every other line, of the thread that runs now.
struct Running {
  Place place;
  unsigned lane;           // of its warp
  unsigned collectives;    // that it has come to
  unsigned char* brought;  // two of [lanes, bytes_a_lane]: a lane may be at the next collective already
};
extern Running* running;

inline const Place& here() {
  return running->place;
}

void block_barrier();
/// Until every lane of the warp has come.
void wait_for_warp();
/// What every lane of the warp brought: lane l's at bytes_a_lane * l.
template <class T>
const unsigned char* exchange(const T& mine) {
  static_assert(sizeof mine <= bytes_a_lane);
  unsigned char* const brought = running->brought + running->collectives++ % 2 * lanes * bytes_a_lane;
  std::memcpy(brought + bytes_a_lane * running->lane, &mine, sizeof mine);
  wait_for_warp();
  return brought;
}
void* shared_memory();
void copy_async(void* to, const void* from, bool zeros);
void end_copy_group();
void wait_for_copies(int pending);
void wait_for_prior_kernel();

// Copies that barriers count (kernels/gpu/async_copies.cuh).
struct Barrier {
  uint16_t arrivals, missing;  // of a phase: in all, and still
  int32_t bytes : 31;          // still to come
  uint32_t phase : 1;
};
static_assert(sizeof(Barrier) == 8);
/// Rows in global memory, of numbers of so many bytes.
struct TensorMap {
  const unsigned char* first;
  int64_t rows, columns, row_bytes, number_bytes;
  int box_rows, box_bytes;  // bytes of a box's row
  bool swizzled;
};
void init_barrier(Barrier* barrier, int arrivals);
void arrive(Barrier* barrier, int bytes);
void wait_for_phase(Barrier* barrier, unsigned phase);
void copy_box(void* to, const TensorMap& map, int column, int row, Barrier* barrier);
float4 read_of_block(const float4* own, int block);
void arrive_at_cluster();
void wait_for_cluster();
void sync_threads(int number, int count);

/// A kind of 16-bit number.
struct Number {
  float (*to_float)(uint16_t);
  int least_exponent, mantissa_bits;
};
void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, const Number& number);
void begin_products();
/// b: address of the first of 8 * tiles rows, as tensor cores of sm_90 find them (PTX ISA, "128B swizzling").
void begin_multiply(float (*d)[4], const uint32_t (&a)[4], uintptr_t b, int tiles, const Number& number);
/// Of boxes of 64 rows (kernels/gpu/warpgroup_boxes.cuh).
void begin_multiply_boxes(float (*d)[4], uintptr_t left, uintptr_t right, bool adds, const Number& number);
void begin_multiply_down(float (*d)[4], const uint32_t (&a)[4], uintptr_t right, bool adds,
                         const Number& number);
void end_product_group();
void wait_for_products(int pending);

/// Runs `thread` for every thread of every block, one cluster of blocks after the other.
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

using emulation::arrive_at_cluster, emulation::wait_for_cluster, emulation::read_of_block;
using emulation::Barrier, emulation::TensorMap;
using emulation::copy_box, emulation::init_barrier, emulation::wait_for_phase;
inline void show_barriers() {}
inline void arrive(Barrier* barrier) {
  emulation::arrive(barrier, 0);
}
inline void arrive_and_expect(Barrier* barrier, int bytes) {
  emulation::arrive(barrier, bytes);
}
inline uint64_t read_once() {
  return 0;
}
inline void copy_box_once(void* to, const TensorMap& map, int column, int row, Barrier* barrier, uint64_t) {
  copy_box(to, map, column, row, barrier);
}
inline void arrive_at_cluster_with_nothing() {
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
  const unsigned char* rows = emulation::exchange(row);
  const unsigned lane = emulation::running->lane, column = lane / 4, first = lane % 4 * 2;
  const auto element = [&](unsigned of_row) {
    const uint16_t* from;
    std::memcpy(&from, rows + emulation::bytes_a_lane * of_row, sizeof from);
    return static_cast<uint32_t>(from[column]);
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
inline int64_t shared_bytes_a_block() {
  return int64_t{227} << 10;  // of an H100
}
/// Now a small GPU, now a large one: work is shared out among its multiprocessors, and yields the same.
inline int multiprocessors() {
  constexpr int sizes[] = {132, 1, 14, 40, 3};
  static int asked = 0;
  return sizes[asked++ % 5];
}
/// Fewer than there are tiles, now and then.
template <int Blocks, class Kernel>
int most_clusters(Kernel, int, int64_t) {
  const int most = multiprocessors() / Blocks;
  return most > 0 ? most : 1;
}
inline bool has_warpgroup_products() {
  return true;
}
inline void launch_dependents() {}
inline void wait_for_prior_kernel() {
  emulation::wait_for_prior_kernel();
}

}  // namespace clover::kernels::cuda

#define threadIdx (::clover::kernels::cuda::emulation::here().thread)
#define blockIdx (::clover::kernels::cuda::emulation::here().block)
#define blockDim (::clover::kernels::cuda::emulation::here().block_size)
#define gridDim (::clover::kernels::cuda::emulation::here().grid)

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
  std::memcpy(&other, emulation::exchange(mine) + emulation::bytes_a_lane * (lane % 32), sizeof other);
  return other;
}
template <class T>
T __shfl_xor_sync(unsigned all, T mine, int apart) {
  return __shfl_sync(all, mine, static_cast<int>(clover::kernels::cuda::emulation::running->lane) ^ apart);
}

/// One fiber runs at a time.
template <class T>
T atomicAdd(T* to, T more) {
  const T before = *to;
  *to += more;
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
  const unsigned char* brought = emulation::exchange(mine);
  unsigned largest = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    unsigned other;
    std::memcpy(&other, brought + emulation::bytes_a_lane * lane, sizeof other);
    if (other > largest) largest = other;
  }
  return largest;
}

inline unsigned __ballot_sync(unsigned, bool mine) {
  using namespace clover::kernels::cuda;
  const unsigned char vote = mine ? 1 : 0;
  const unsigned char* votes = emulation::exchange(vote);
  unsigned all = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    all |= static_cast<unsigned>(votes[emulation::bytes_a_lane * lane]) << lane;
  return all;
}

#include "kernels/gpu/numbers.h"

namespace clover::kernels::cuda {

constexpr emulation::Number number_of(Bf16) {
  return {[](uint16_t bits) { return to_float(Bf16{bits}); }, -126, 7};
}
constexpr emulation::Number number_of(Fp16) {
  return {[](uint16_t bits) { return to_float(Fp16{bits}); }, -14, 10};
}
template <class T>
void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, T) {
  emulation::multiply_add(d, a, b0, b1, number_of(T{}));
}

// Products of four warps are made when they are waited for: what they read must still be there.
inline void show_tensor_cores() {}
inline void begin_products() {
  emulation::begin_products();
}
inline uint64_t describe_rows(const void* first) {
  return reinterpret_cast<uintptr_t>(first);
}
template <int Tiles, class T>
void begin_multiply(float (&sum)[Tiles][4], const uint32_t (&a)[4], uint64_t box, int step, T) {
  emulation::begin_multiply(sum, a, box + 32 * step, Tiles, number_of(T{}));
}
template <class T>
void begin_multiply_boxes(float (&sum)[8][4], uint64_t left, uint64_t right, int step, bool adds, T) {
  emulation::begin_multiply_boxes(sum, left + 32 * step, right + 32 * step, adds, number_of(T{}));
}
template <class T>
void begin_multiply_down(float (&sum)[8][4], const uint32_t (&a)[4], uint64_t right, int step, bool adds, T) {
  emulation::begin_multiply_down(sum, a, right + 16 * 128 * step, adds, number_of(T{}));
}
inline uint64_t box_behind(uint64_t box, int boxes) {
  return box + 8192 * boxes;
}
template <int Registers>
void give_registers() {}
template <int Registers>
void take_registers() {}
inline float exp_two(float x) {
  return std::exp2(x);
}
inline float multiply_and_add(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline void end_product_group() {
  emulation::end_product_group();
}
template <int Pending>
void wait_for_products() {
  emulation::wait_for_products(Pending);
}
inline void read_behind_wait(float&) {}
inline void hold(const uint32_t (&)[4], bool, const void*) {}

}  // namespace clover::kernels::cuda
