#pragma once

#include "kernels/device/numbers.h"

namespace clover::kernels::cuda {

/// How a product's sum over k is cut: steps of 16 inputs, eight segments of steps.  A segment is one chain of
/// multiply_add from zero, and the segments are added in order: a function of K alone, whatever kernel runs.
struct KCut {
  static constexpr int segments = 8;
  int64_t steps;

  CLOVER_BOTH explicit KCut(int64_t inputs) : steps((inputs + 31) / 32 * 2) {}  // panels end on 32 inputs
  CLOVER_BOTH int64_t begin(int64_t segment) const { return steps * segment / segments; }
};

}  // namespace clover::kernels::cuda
