#include "kernels/cpu/family.h"
#include "kernels/cpu/lanes.h"
#include "kernels/vocabulary/logit_loops.h"

// F32x8 is a vector of eight floats, F32xN the longest one that the CPU has (kernels/cpu/lanes.h).
namespace clover::kernels::cpu {
namespace {

const float minus_infinity = -__builtin_inff();

float maximum(const float* x, int64_t n) {
  F32x8 best[4] = {splat(minus_infinity), splat(minus_infinity), splat(minus_infinity),
                   splat(minus_infinity)};
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    for (int part = 0; part < 4; ++part) best[part] = larger(load8(x + i + 8 * part), best[part]);
  }
  for (; i < n; i += 8) {
    best[0] = larger(i + 8 <= n ? load8(x + i) : load_part(x + i, n - i, minus_infinity), best[0]);
  }
  return max8(larger(larger(best[0], best[1]), larger(best[2], best[3])));
}

void block_maxima(const float* x, int64_t n, int64_t block, float* out) {
  for (int64_t at = 0; at < n; at += block) *out++ = maximum(x + at, n - at < block ? n - at : block);
}

int64_t first_equal(const float* x, int64_t n, float value) {
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    I32x8 hit = load8(x + i) == value;
    for (int part = 1; part < 4; ++part) hit |= load8(x + i + 8 * part) == value;
    if (any(hit)) break;
  }
  for (; i < n; ++i) {
    if (x[i] == value) return i;
  }
  return n;
}

float sum_exp(const float* x, int64_t n, float shift) {
  F32x8 sum[4] = {};
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    for (int part = 0; part < 4; ++part) sum[part] += exp_lanes(load8(x + i + 8 * part) - shift);
  }
  for (int part = 0; i < n; i += 8, ++part) {
    sum[part] += exp_lanes((i + 8 <= n ? load8(x + i) : load_part(x + i, n - i, minus_infinity)) - shift);
  }
  return sum8((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/// floor(weight * 2^40) as high * 2^20 + low.  Only the conversion of `low` rounds; the steps before are
/// exact.
template <class F, class I = decltype(F{} < F{})>
struct MassParts {
  I high, low;

  CLOVER_INLINE explicit MassParts(F weight) {
    const F scaled = weight * 1048576.0f;
    high = __builtin_convertvector(scaled, I);
    low = __builtin_convertvector((scaled - __builtin_convertvector(high, F)) * 1048576.0f, I);
  }
};

/// Appends a whole vector of tokens to `near`, without a branch for each lane; the mass of lanes that are not
/// `wanted` is set to 0.
template <class F, class I>
CLOVER_INLINE void append(F distance, const MassParts<F>& mass, I wanted, int64_t index, NearTokens& near) {
  I lane;
  for (int i = 0; i < lane_count<F>; ++i) lane[i] = i;
  store_line(near.distance + near.count, distance);
  store_line(near.index + near.count, lane + static_cast<int32_t>(index));
  store_line(near.high + near.count, mass.high & wanted);
  store_line(near.low + near.count, mass.low & wanted);
  near.count += lane_count<F>;
}

void collect_near(const float* x, int64_t n, float shift, float temperature, float limit, NearTokens& near) {
  using Integers = decltype(F32xN{} < F32xN{});
  constexpr int64_t lanes = lane_count<F32xN>;
  // A lane adds 1024 numbers of at most 2^20 to its int32 sums, half of what they can hold.
  constexpr int64_t at_once = 1024 * lanes;
  // Logits below `min_logit` have mass 0: exp(-28) is 0.76 * 2^-40, which leaves a margin for rounding.
  // `min_logit` is NaN if the largest logit and the temperature are infinite; then no logit compares below
  // it.
  const float min_logit = shift - 28.0f * temperature;
  near.count = 0;
  near.total_mass = 0;
  for (int64_t begin = 0; begin < n; begin += at_once) {
    Integers high{}, low{};
    const auto add = [&](F32xN logit, int64_t index) CLOVER_INLINED {
      if (!any(~(logit < min_logit))) return;
      const F32xN scaled = (shift - logit) / temperature;
      // This holds for an infinite shift too: the largest is at distance 0, all others and NaN at infinity.
      const F32xN distance =
          logit == shift ? F32xN{} : (scaled >= 0.0f ? scaled : F32xN{} + __builtin_inff());
      const MassParts<F32xN> mass(exp_lanes(-distance));
      high += mass.high;
      low += mass.low;
      if (const Integers wanted = distance <= limit; any(wanted)) append(distance, mass, wanted, index, near);
    };
    const int64_t end = n - begin < at_once ? n : begin + at_once;
    int64_t i = begin;
    for (; i + lanes <= end; i += lanes) add(load_lanes<F32xN>(x + i), i);
    if (i < end) {
      float tail[lanes];
      for (int64_t lane = 0; lane < lanes; ++lane) tail[lane] = i + lane < end ? x[i + lane] : minus_infinity;
      add(load_lanes<F32xN>(tail), i);
    }
    for (int64_t lane = 0; lane < lanes; ++lane) near.total_mass += combine_mass(high[lane], low[lane]);
  }
}

}  // namespace

template <>
const LogitLoops LoopsOf<LogitLoops, CLOVER_FAMILY>::loops{maximum, block_maxima, first_equal, sum_exp,
                                                           collect_near};

}  // namespace clover::kernels::cpu
