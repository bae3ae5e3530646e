#include "kernels/cpu/family.h"
#include "kernels/rows/activation_call.h"
#include "kernels/rows/row_lanes.h"

// The formulas of SiLU and exp are silu_lanes and exp_lanes in kernels/cpu/lanes.h.
namespace clover::kernels::cpu {
namespace {

float exp_scalar(float x) {
  return exp_lanes(splat(x))[0];
}

void add_silu(float* z, const float* a, int64_t begin, int64_t end) {
  fill_row(z + begin, end - begin, [&](auto load) { return load(z + begin) + silu_lanes(load(a + begin)); });
}

void add_gated(float* s, const float* q, const float* k, const float* v, int64_t width, int64_t groups,
               float eps, bool silu) {
  const int64_t slice = width / groups;
  for (int64_t i = 0; i < groups; ++i) {
    const int64_t first = i * slice;
    const float q_norm = __builtin_sqrtf(dot(q + first, q + first, slice));
    const float k_norm = __builtin_sqrtf(dot(k + first, k + first, slice));
    const float gate =
        dot(q + first, k + first, slice) / ((q_norm > eps ? q_norm : eps) * (k_norm > eps ? k_norm : eps));
    if (silu) {
      fill_row(s + first, slice,
               [&](auto load) { return load(s + first) + silu_lanes(load(v + first) * gate); });
    } else {
      fill_row(s + first, slice, [&](auto load) { return load(s + first) + load(v + first) * gate; });
    }
  }
}

}  // namespace

template <>
const ActivationLoops LoopsOf<ActivationLoops, CLOVER_FAMILY>::loops{exp_scalar, add_silu, add_gated};

}  // namespace clover::kernels::cpu
