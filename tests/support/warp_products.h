#pragma once

#include "tests/support/cuda_emulation.h"

// What the tensor cores make of the operands of a warp's 32 lanes.
namespace clover::kernels::cuda::emulation {

/// The left operand [16, 16] of a product: two words a lane are its row lane / 4, two the row 8 below
/// (PTX ISA, "Matrix fragments for mma.m16n8k16").
struct LeftOperand {
  uint32_t words[lanes][4];
};
/// The right operand [16, 8]: a lane's words are of its column lane / 4.
struct RightOperand {
  uint32_t words[lanes][2];
};

/// d += left * right for the 16 x 8 sums, of which lane l holds the four at d[l]: each is sum_at_once
/// (tensor_core_sum.h) of its row and its column, to the bit.
void multiply_add_warp(float* const (&d)[lanes], const LeftOperand& left, const RightOperand& right,
                       const Number& number, int bits);

}  // namespace clover::kernels::cuda::emulation
