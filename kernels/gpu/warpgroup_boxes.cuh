#pragma once

#include <type_traits>

#include "kernels/gpu/warpgroup.cuh"

// Two more wgmma products (warpgroup.cuh), for attention: scores Q K^T, with both operands in shared memory,
// and weighted values P V. Operands in shared memory are swizzled boxes of 64 rows of 128 bytes (64 numbers),
// as copy_box writes them, given by their descriptors (describe_rows).
namespace clover::kernels::cuda {

#if !defined(CLOVER_CUDA_EMULATION)

// Descriptors count in units of 16 bytes: 16 columns of a box are 2 units, 16 rows are 128.
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
#define CLOVER_MULTIPLY_BY_BOX(type)                                                   \
  asm volatile(                                                                        \
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %37, 0;\n"                               \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " CLOVER_BOX_NAMES \
      ", {%32,%33,%34,%35}, %36, adds, 1, 1, 1;\n}"                                    \
      : CLOVER_BOX_SUMS                                                                \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right + 128 * step), "r"(static_cast<int>(adds)))

/// Begins sum = left right^T, or sum += left right^T if `adds`, over columns 16 * step to 16 * step + 15.
/// `left` and `right` are boxes of 64 rows of T (Bf16 or Fp16); sum [64, 64] is split among threads as in
/// begin_multiply.
template <class T>
__device__ __forceinline__ void begin_multiply_boxes(float (&sum)[8][4], uint64_t left, uint64_t right,
                                                     int step, bool adds, T) {
  if constexpr (std::is_same_v<T, Bf16>) {
    CLOVER_MULTIPLY_BOXES("bf16");
  } else {
    CLOVER_MULTIPLY_BOXES("f16");
  }
}
/// Begins sum = a right, or sum += a right if `adds`, where `right` [16, 64] is rows 16 * step to 16 * step +
/// 15 of a box. `a` [64, 16] is in registers: 16 rows for each warp, as in multiply_add (device.cuh).
template <class T>
__device__ __forceinline__ void begin_multiply_by_box(float (&sum)[8][4], const uint32_t (&a)[4],
                                                      uint64_t right, int step, bool adds, T) {
  if constexpr (std::is_same_v<T, Bf16>) {
    CLOVER_MULTIPLY_BY_BOX("bf16");
  } else {
    CLOVER_MULTIPLY_BY_BOX("f16");
  }
}

#undef CLOVER_MULTIPLY_BY_BOX
#undef CLOVER_MULTIPLY_BOXES
#undef CLOVER_BOX_SUMS
#undef CLOVER_BOX_FOUR
#undef CLOVER_BOX_NAMES

/// The descriptor of the box that lies `boxes` boxes, of 8192 bytes each, after `box`.
__device__ __forceinline__ uint64_t box_after(uint64_t box, int boxes) {
  return box + (8192 >> 4) * boxes;
}

/// Lowers the registers of each thread of this warpgroup to `Registers` (setmaxnreg), so that another
/// warpgroup can take more.
template <int Registers>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
/// Raises them to `Registers`; waits until another warpgroup has given enough.
template <int Registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// 2^x with a relative error of about 2^-22.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// a * b + c, rounded once.
__device__ __forceinline__ float fused_multiply_add(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}

#endif  // CLOVER_CUDA_EMULATION

}  // namespace clover::kernels::cuda
