#pragma once

#include <type_traits>

#include "kernels/gpu/async_copies.cuh"

// wgmma, sm_90's asynchronous matrix products by a warpgroup of four warps: 64 outputs, of which each warp
// has a panel of 16, times rows of x. Weights are in registers and x in shared memory. Tensor cores read both
// while the threads go on. Several products in a row:
//   begin_products, begin_multiply ..., end_product_group, wait_for_products, then read_after_wait for each
//   sum
// (PTX ISA, "Asynchronous warpgroup level matrix instructions".)
namespace clover::kernels::cuda {

#if !defined(CLOVER_CUDA_EMULATION)

/// Makes what this thread wrote to shared memory visible to tensor cores and TMA (fence.proxy.async).
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// Must be called before the first product, and again after a thread has written to the sums (wgmma.fence).
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/// Makes a group of the products begun since the last group (wgmma.commit_group).
__device__ __forceinline__ void end_product_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `Pending` groups of products are incomplete (wgmma.wait_group).
template <int Pending>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
/// Called for each sum after wait_for_products: keeps the compiler from reading the sum before the wait.
__device__ __forceinline__ void read_after_wait(float& sum) {
  asm volatile("" : "+f"(sum)::"memory");
}

/// Called after wait_for_products: keeps a left operand `a` in its registers until then. Compilers, ptxas
/// before 13.3 included, do not know that tensor cores still read the registers, and would reuse them. This
/// is a use of them that compilers must respect: a store to `shared` (16 bytes, aligned) under the condition
/// `never`. The caller passes a value that is always false but that the compiler cannot know.
__device__ __forceinline__ void keep_operands(const uint32_t (&a)[4], bool never, const void* shared) {
  asm volatile(
      "{\n.reg .pred never;\nsetp.ne.b32 never, %0, 0;\n"
      "@never st.shared.v4.b32 [%1], {%2, %3, %4, %5};\n}" ::"r"(static_cast<uint32_t>(never)),
      "r"(shared_address(shared)), "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
      : "memory");
}

/// wgmma's descriptor of an operand in shared memory: rows of a swizzled box, as copy_box writes them, from
/// `first` on. Eight rows take 1024 bytes, and the next eight follow. Addresses are in units of 16 bytes.
__device__ __forceinline__ uint64_t describe_rows(const void* first) {
  constexpr uint64_t eight_rows = swizzled_alignment >> 4, swizzle_of_128_bytes = 1;
  return swizzle_of_128_bytes << 62 | eight_rows << 32 | uint64_t{1} << 16 | shared_address(first) >> 4;
}

// Operands of the assembly: CLOVER_NAMES_t are the sums of t tiles, four registers for each tile of eight
// rows, from %0 on; CLOVER_SUMS_t are the matching C++ operands. The registers of weights and the descriptor
// of rows follow.
#define CLOVER_NAMES_1 "%0,%1,%2,%3"
#define CLOVER_NAMES_2 CLOVER_NAMES_1 ",%4,%5,%6,%7"
#define CLOVER_NAMES_3 CLOVER_NAMES_2 ",%8,%9,%10,%11"
#define CLOVER_NAMES_4 CLOVER_NAMES_3 ",%12,%13,%14,%15"
#define CLOVER_NAMES_5 CLOVER_NAMES_4 ",%16,%17,%18,%19"
#define CLOVER_NAMES_6 CLOVER_NAMES_5 ",%20,%21,%22,%23"
#define CLOVER_NAMES_8 \
  CLOVER_NAMES_6       \
  ",%24,%25,%26,%27"   \
  ",%28,%29,%30,%31"
#define CLOVER_NAMES_10 \
  CLOVER_NAMES_8        \
  ",%32,%33,%34,%35"    \
  ",%36,%37,%38,%39"
#define CLOVER_NAMES_12 \
  CLOVER_NAMES_10       \
  ",%40,%41,%42,%43"    \
  ",%44,%45,%46,%47"
#define CLOVER_NAMES_16 \
  CLOVER_NAMES_12       \
  ",%48,%49,%50,%51"    \
  ",%52,%53,%54,%55"    \
  ",%56,%57,%58,%59"    \
  ",%60,%61,%62,%63"
#define CLOVER_NAMES_20 \
  CLOVER_NAMES_16       \
  ",%64,%65,%66,%67"    \
  ",%68,%69,%70,%71"    \
  ",%72,%73,%74,%75"    \
  ",%76,%77,%78,%79"
#define CLOVER_NAMES_24 \
  CLOVER_NAMES_20       \
  ",%80,%81,%82,%83"    \
  ",%84,%85,%86,%87"    \
  ",%88,%89,%90,%91"    \
  ",%92,%93,%94,%95"
#define CLOVER_NAMES_32  \
  CLOVER_NAMES_24        \
  ",%96,%97,%98,%99"     \
  ",%100,%101,%102,%103" \
  ",%104,%105,%106,%107" \
  ",%108,%109,%110,%111" \
  ",%112,%113,%114,%115" \
  ",%116,%117,%118,%119" \
  ",%120,%121,%122,%123" \
  ",%124,%125,%126,%127"
#define CLOVER_FOUR_SUMS(tile) "+f"(sum[tile][0]), "+f"(sum[tile][1]), "+f"(sum[tile][2]), "+f"(sum[tile][3])
#define CLOVER_SUMS_1 CLOVER_FOUR_SUMS(0)
#define CLOVER_SUMS_2 CLOVER_SUMS_1, CLOVER_FOUR_SUMS(1)
#define CLOVER_SUMS_3 CLOVER_SUMS_2, CLOVER_FOUR_SUMS(2)
#define CLOVER_SUMS_4 CLOVER_SUMS_3, CLOVER_FOUR_SUMS(3)
#define CLOVER_SUMS_5 CLOVER_SUMS_4, CLOVER_FOUR_SUMS(4)
#define CLOVER_SUMS_6 CLOVER_SUMS_5, CLOVER_FOUR_SUMS(5)
#define CLOVER_SUMS_8 CLOVER_SUMS_6, CLOVER_FOUR_SUMS(6), CLOVER_FOUR_SUMS(7)
#define CLOVER_SUMS_10 CLOVER_SUMS_8, CLOVER_FOUR_SUMS(8), CLOVER_FOUR_SUMS(9)
#define CLOVER_SUMS_12 CLOVER_SUMS_10, CLOVER_FOUR_SUMS(10), CLOVER_FOUR_SUMS(11)
#define CLOVER_SUMS_16 \
  CLOVER_SUMS_12, CLOVER_FOUR_SUMS(12), CLOVER_FOUR_SUMS(13), CLOVER_FOUR_SUMS(14), CLOVER_FOUR_SUMS(15)
#define CLOVER_SUMS_20 \
  CLOVER_SUMS_16, CLOVER_FOUR_SUMS(16), CLOVER_FOUR_SUMS(17), CLOVER_FOUR_SUMS(18), CLOVER_FOUR_SUMS(19)
#define CLOVER_SUMS_24 \
  CLOVER_SUMS_20, CLOVER_FOUR_SUMS(20), CLOVER_FOUR_SUMS(21), CLOVER_FOUR_SUMS(22), CLOVER_FOUR_SUMS(23)
#define CLOVER_SUMS_32                                                                                    \
  CLOVER_SUMS_24, CLOVER_FOUR_SUMS(24), CLOVER_FOUR_SUMS(25), CLOVER_FOUR_SUMS(26), CLOVER_FOUR_SUMS(27), \
      CLOVER_FOUR_SUMS(28), CLOVER_FOUR_SUMS(29), CLOVER_FOUR_SUMS(30), CLOVER_FOUR_SUMS(31)
// `others`: the names of the weights' registers and of the descriptor. `size`: 8 * tiles, as a string.
#define CLOVER_MULTIPLY(tiles, size, type, others)                                                         \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" size "k16.f32." type "." type " {" CLOVER_NAMES_##tiles \
               "}, " others ", 1, 1, 1, 0;"                                                                \
               : CLOVER_SUMS_##tiles                                                                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows))
#define CLOVER_MULTIPLY_EITHER(tiles, size, others) \
  if constexpr (Tiles == tiles) {                   \
    if constexpr (std::is_same_v<T, Bf16>) {        \
      CLOVER_MULTIPLY(tiles, size, "bf16", others); \
    } else {                                        \
      CLOVER_MULTIPLY(tiles, size, "f16", others);  \
    }                                               \
  }

/// Begins sum += weights * x over 16 inputs: weights [64 outputs, 16], x [8 * Tiles rows, 16].
///   a    this warp's weights [16 outputs, 16], as in multiply_add (device.cuh)
///   box  describe_rows of a swizzled box of x, of which inputs 16 * step to 16 * step + 15 are read
///   sum  sum[i] is d of multiply_add for rows 8i to 8i + 7 of x
///   T    the type of weights and x, Bf16 or Fp16
template <int Tiles, class T>
__device__ __forceinline__ void begin_multiply(float (&sum)[Tiles][4], const uint32_t (&a)[4], uint64_t box,
                                               int step, T) {
  const uint64_t rows = box + 2 * step;  // 16 inputs are 2 units of 16 bytes
  CLOVER_MULTIPLY_EITHER(1, "8", "{%4,%5,%6,%7}, %8")
  CLOVER_MULTIPLY_EITHER(2, "16", "{%8,%9,%10,%11}, %12")
  CLOVER_MULTIPLY_EITHER(3, "24", "{%12,%13,%14,%15}, %16")
  CLOVER_MULTIPLY_EITHER(4, "32", "{%16,%17,%18,%19}, %20")
  CLOVER_MULTIPLY_EITHER(5, "40", "{%20,%21,%22,%23}, %24")
  CLOVER_MULTIPLY_EITHER(6, "48", "{%24,%25,%26,%27}, %28")
  CLOVER_MULTIPLY_EITHER(8, "64", "{%32,%33,%34,%35}, %36")
  CLOVER_MULTIPLY_EITHER(10, "80", "{%40,%41,%42,%43}, %44")
  CLOVER_MULTIPLY_EITHER(12, "96", "{%48,%49,%50,%51}, %52")
  CLOVER_MULTIPLY_EITHER(16, "128", "{%64,%65,%66,%67}, %68")
  CLOVER_MULTIPLY_EITHER(20, "160", "{%80,%81,%82,%83}, %84")
  CLOVER_MULTIPLY_EITHER(24, "192", "{%96,%97,%98,%99}, %100")
  CLOVER_MULTIPLY_EITHER(32, "256", "{%128,%129,%130,%131}, %132")
}

#undef CLOVER_MULTIPLY_EITHER
#undef CLOVER_MULTIPLY
#undef CLOVER_FOUR_SUMS
#undef CLOVER_SUMS_1
#undef CLOVER_SUMS_2
#undef CLOVER_SUMS_3
#undef CLOVER_SUMS_4
#undef CLOVER_SUMS_5
#undef CLOVER_SUMS_6
#undef CLOVER_SUMS_8
#undef CLOVER_SUMS_10
#undef CLOVER_SUMS_12
#undef CLOVER_SUMS_16
#undef CLOVER_SUMS_20
#undef CLOVER_SUMS_24
#undef CLOVER_SUMS_32
#undef CLOVER_NAMES_1
#undef CLOVER_NAMES_2
#undef CLOVER_NAMES_3
#undef CLOVER_NAMES_4
#undef CLOVER_NAMES_5
#undef CLOVER_NAMES_6
#undef CLOVER_NAMES_8
#undef CLOVER_NAMES_10
#undef CLOVER_NAMES_12
#undef CLOVER_NAMES_16
#undef CLOVER_NAMES_20
#undef CLOVER_NAMES_24
#undef CLOVER_NAMES_32

#endif  // CLOVER_CUDA_EMULATION

}  // namespace clover::kernels::cuda
