#pragma once

#include <type_traits>

#include "kernels/gpu/warpgroup.cuh"

// wgmma with both operands in shared memory, and with a right operand whose rows are summed over: attention's
// scores and weighted values. Operands are boxes of 64 rows of 128 bytes as copy_box leaves them.
namespace clover::kernels::cuda {

#if !defined(CLOVER_CUDA_EMULATION)

#define CLOVER_BOX_NAMES                                                                                \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26," \
  "%27,%28,%29,%30,%31}"
#define CLOVER_BOX_FOUR(i) "+f"(sum[i][0]), "+f"(sum[i][1]), "+f"(sum[i][2]), "+f"(sum[i][3])
#define CLOVER_BOX_SUMS                                                                               \
  CLOVER_BOX_FOUR(0), CLOVER_BOX_FOUR(1), CLOVER_BOX_FOUR(2), CLOVER_BOX_FOUR(3), CLOVER_BOX_FOUR(4), \
      CLOVER_BOX_FOUR(5), CLOVER_BOX_FOUR(6), CLOVER_BOX_FOUR(7)
#define CLOVER_MULTIPLY_BOXES(type)                                                    \
  asm volatile(                                                                        \
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %34, 0;\n"                               \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " CLOVER_BOX_NAMES \
      ", %32, %33, adds, 1, 1, 0, 0;\n}"                                               \
      : CLOVER_BOX_SUMS                                                                \
      : "l"(left + 2 * step), "l"(right + 2 * step), "r"(static_cast<int>(adds)))
#define CLOVER_MULTIPLY_DOWN(type)                                                     \
  asm volatile(                                                                        \
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %37, 0;\n"                               \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " CLOVER_BOX_NAMES \
      ", {%32,%33,%34,%35}, %36, adds, 1, 1, 1;\n}"                                    \
      : CLOVER_BOX_SUMS                                                                \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right + 128 * step), "r"(static_cast<int>(adds)))

/// Begins sum = or (where it `adds`) += left right^T for 64 rows each, by 16 columns from 16 * step on.
template <class T>
__device__ __forceinline__ void begin_multiply_boxes(float (&sum)[8][4], uint64_t left, uint64_t right,
                                                     int step, bool adds, T) {
  if constexpr (std::is_same_v<T, Bf16>) {
    CLOVER_MULTIPLY_BOXES("bf16");
  } else {
    CLOVER_MULTIPLY_BOXES("f16");
  }
}
/// The same with a left operand in registers, `a` as in multiply_add, 16 rows for each warp, times 16 rows of
/// the right operand from 16 * step on by its 64 columns.
template <class T>
__device__ __forceinline__ void begin_multiply_down(float (&sum)[8][4], const uint32_t (&a)[4],
                                                    uint64_t right, int step, bool adds, T) {
  if constexpr (std::is_same_v<T, Bf16>) {
    CLOVER_MULTIPLY_DOWN("bf16");
  } else {
    CLOVER_MULTIPLY_DOWN("f16");
  }
}

#undef CLOVER_MULTIPLY_DOWN
#undef CLOVER_MULTIPLY_BOXES
#undef CLOVER_BOX_SUMS
#undef CLOVER_BOX_FOUR
#undef CLOVER_BOX_NAMES

/// The descriptor of the box that is `boxes` boxes of 8 KiB further on.
__device__ __forceinline__ uint64_t box_behind(uint64_t box, int boxes) {
  return box + (8192 >> 4) * boxes;
}

/// From here on each thread of the warpgroup has `Registers` registers (setmaxnreg): fewer, so that another
/// warpgroup can have more.
template <int Registers>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// 2^x, to 22 bits.
__device__ __forceinline__ float exp_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float multiply_and_add(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}

#endif  // CLOVER_CUDA_EMULATION

}  // namespace clover::kernels::cuda
