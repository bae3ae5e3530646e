#pragma once

#include <cstdint>
#include <vector>

namespace clover::kernels::cpu {

/// One of a row's largest values.
struct Ranked {
  float value;
  int64_t index;
};

/// Writes the k largest of x[0 .. n) to `out`, best first, ties to the lowest index, NaN as -inf.
/// 1 <= k <= n.
void row_top_k(const float* x, int64_t n, int64_t k, std::vector<Ranked>& out);

/// Index of the largest of x[0 .. n), ties to the lowest index, NaN as -inf; -1 if all are -inf.  n >= 1.
int64_t row_arg_max(const float* x, int64_t n);

}  // namespace clover::kernels::cpu
