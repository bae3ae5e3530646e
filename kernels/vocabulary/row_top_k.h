#pragma once

#include <cstdint>
#include <vector>

namespace clover::kernels::cpu {

struct Ranked {
  float value;
  int64_t index;
};

/// The k largest of x[0 .. n), best first, ties to the lowest index, NaN as -inf.  1 <= k <= n.  The result
/// lives in `out`, whose storage is reused.
void row_top_k(const float* x, int64_t n, int64_t k, std::vector<Ranked>& out);

/// Index of the largest, ties to the lowest, NaN as -inf; -1 where all are -inf.  n >= 1.
int64_t row_arg_max(const float* x, int64_t n);

}  // namespace clover::kernels::cpu
