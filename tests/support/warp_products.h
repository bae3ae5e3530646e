#pragma once

#include "tests/support/cuda_emulation.h"

// A tensor core product of one warp, m16n8k16, whose operands are split among its 32 lanes (PTX ISA, "Matrix
// fragments for mma.m16n8k16").  A word is two neighbouring 16-bit numbers along K.
namespace clover::kernels::cuda::emulation {

/// The left operand [16, 16]: words 0 and 2 of a lane are in row lane / 4, words 1 and 3 in row lane / 4 + 8.
struct LeftOperand {
  uint32_t words[lanes][4];
};
/// The right operand [16, 8]: both words of a lane are in column lane / 4.
struct RightOperand {
  uint32_t words[lanes][2];
};

/// d += left right, d [16, 8] fp32; d[l] is the address of the four sums that lane l holds.  Each sum has the
/// same bits as tensor_core_sum (tensor_core_sum.h) with this argument `bits`.
void multiply_add_warp(float* const (&d)[lanes], const LeftOperand& left, const RightOperand& right,
                       const NumberFormat& format, int bits);

}  // namespace clover::kernels::cuda::emulation
