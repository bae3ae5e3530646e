#pragma once

#include <type_traits>

#include "kernels/device/cuda.h"

// Products of sm_90 that four warps make together: 64 outputs, a panel a warp, by rows of x in shared memory.
// Tensor cores read those, and the weights in registers, while the threads go on.  (PTX ISA, "Asynchronous
// warpgroup level matrix instructions".)
namespace clover::kernels::cuda {

/// Where such a row, of 32 inputs, has its words: 16 bytes, of the row's 64, at a time.  Rows are 64 bytes
/// apart, and the places of eight of them in different banks.  (PTX ISA, "64B swizzling": bits 4 and 5 of an
/// address by 7 and 8.)
CLOVER_BOTH int row_place(int row, int sixteen) {
  return row * 16 + (sixteen ^ row / 2 % 4) * 4;
}
/// What the first of the rows must be aligned to, in bytes.
constexpr int rows_alignment = 512;

#if !defined(CLOVER_CUDA_EMULATION)

/// What this thread has written to shared memory, its copies included, can be read by tensor cores.
__device__ __forceinline__ void show_tensor_cores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// The sums are as the threads have left them: before the first product, and whenever a thread wrote to them.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void end_product_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Until at most `Pending` groups are under way.
template <int Pending>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
/// Behind a wait: not to be read before it.
__device__ __forceinline__ void read_behind_wait(float& sum) {
  asm volatile("" : "+f"(sum)::"memory");
}
/// Behind a wait: left operands that were being read until now.  Compilers know nothing of that, ptxas before
/// 13.3 included, and would give their registers away; so here is a use, a store to `stage` (16 bytes,
/// aligned) that does not happen: `never` is false, which none of them can tell.
__device__ __forceinline__ void hold(const uint32_t (&a)[4], bool never, const uint32_t* stage) {
  asm volatile(
      "{\n.reg .pred never;\nsetp.ne.b32 never, %0, 0;\n"
      "@never st.shared.v4.b32 [%1], {%2, %3, %4, %5};\n}" ::"r"(static_cast<uint32_t>(never)),
      "r"(static_cast<uint32_t>(__cvta_generic_to_shared(stage))), "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
      : "memory");
}

/// Eight rows side by side are 512 bytes, and the next eight follow.
__device__ __forceinline__ uint64_t describe_rows(const uint32_t* first) {
  constexpr uint64_t eight_rows = rows_alignment >> 4, swizzle_of_64_bytes = 2;
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(first));
  return swizzle_of_64_bytes << 62 | eight_rows << 32 | uint64_t{1} << 16 | address >> 4;
}

#define CLOVER_FOUR_SUMS(tile) "+f"(sum[tile][0]), "+f"(sum[tile][1]), "+f"(sum[tile][2]), "+f"(sum[tile][3])
#define CLOVER_32_SUMS                                                                                     \
  CLOVER_FOUR_SUMS(0), CLOVER_FOUR_SUMS(1), CLOVER_FOUR_SUMS(2), CLOVER_FOUR_SUMS(3), CLOVER_FOUR_SUMS(4), \
      CLOVER_FOUR_SUMS(5), CLOVER_FOUR_SUMS(6), CLOVER_FOUR_SUMS(7)
#define CLOVER_MULTIPLY_64_ROWS(type)                                                                     \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                \
               " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
               "%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, 1, 1, 1, 0;"                    \
               : CLOVER_32_SUMS                                                                           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows))
#define CLOVER_MULTIPLY_80_ROWS(type)                                                                       \
  asm volatile("wgmma.mma_async.sync.aligned.m64n80k16.f32." type "." type                                  \
               " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"   \
               "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39}, {%40,%41,%42,%43}, %44, " \
               "1, 1, 1, 0;"                                                                                \
               : CLOVER_32_SUMS, CLOVER_FOUR_SUMS(8), CLOVER_FOUR_SUMS(9)                                   \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows))

/// Begins sum += the products of a step of 16 inputs: `a` as in multiply_add, a panel of each warp; eight or
/// ten tiles of eight rows from `first` on, whose 16 inputs begin at 16 bytes number `sixteen`.
template <int Tiles, class T>
__device__ __forceinline__ void begin_multiply(float (*sum)[4], const uint32_t (&a)[4], const uint32_t* first,
                                               int sixteen, T) {
  static_assert(Tiles == 8 || Tiles == 10);
  constexpr bool bf16 = std::is_same_v<T, Bf16>;
  const uint64_t rows = describe_rows(first) + sixteen;
  if constexpr (Tiles == 8 && bf16) CLOVER_MULTIPLY_64_ROWS("bf16");
  if constexpr (Tiles == 8 && !bf16) CLOVER_MULTIPLY_64_ROWS("f16");
  if constexpr (Tiles == 10 && bf16) CLOVER_MULTIPLY_80_ROWS("bf16");
  if constexpr (Tiles == 10 && !bf16) CLOVER_MULTIPLY_80_ROWS("f16");
}

#undef CLOVER_MULTIPLY_80_ROWS
#undef CLOVER_MULTIPLY_64_ROWS
#undef CLOVER_32_SUMS
#undef CLOVER_FOUR_SUMS

#endif  // CLOVER_CUDA_EMULATION

}  // namespace clover::kernels::cuda
