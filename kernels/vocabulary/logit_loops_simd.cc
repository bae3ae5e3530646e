#include "kernels/cpu/family.h"
#include "kernels/cpu/lanes.h"
#include "kernels/vocabulary/logit_loops.h"

namespace clover::kernels::cpu {
namespace {

const float minus_infinity = -__builtin_inff();

float maximum(const float* x, int64_t n) {
  F8 best[4] = {splat(minus_infinity), splat(minus_infinity), splat(minus_infinity), splat(minus_infinity)};
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
    I8 hit = load8(x + i) == value;
    for (int part = 1; part < 4; ++part) hit |= load8(x + i + 8 * part) == value;
    if (any(hit)) break;
  }
  for (; i < n; ++i) {
    if (x[i] == value) return i;
  }
  return n;
}

float sum_exp(const float* x, int64_t n, float shift) {
  F8 sum[4] = {};
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    for (int part = 0; part < 4; ++part) sum[part] += exp_lanes(load8(x + i + 8 * part) - shift);
  }
  for (int part = 0; i < n; i += 8, ++part) {
    sum[part] += exp_lanes((i + 8 <= n ? load8(x + i) : load_part(x + i, n - i, minus_infinity)) - shift);
  }
  return sum8((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/// floor(weight * 2^40) in two parts of 20 bits; only the last truncation rounds.
template <class F, class I = decltype(F{} < F{})>
struct MassParts {
  I high, low;

  CLOVER_INLINE explicit MassParts(F weight) {
    const F scaled = weight * 1048576.0f;
    high = __builtin_convertvector(scaled, I);
    low = __builtin_convertvector((scaled - __builtin_convertvector(high, F)) * 1048576.0f, I);
  }
};

/// Appends whole vectors, so that nothing here depends on what a lane holds; tokens that are not `wanted` get
/// no mass.
template <class F, class I>
CLOVER_INLINE void keep(F distance, const MassParts<F>& mass, I wanted, int64_t index, NearTokens& near) {
  I lane;
  for (int i = 0; i < lane_count<F>; ++i) lane[i] = i;
  store_line(near.distance + near.count, distance);
  store_line(near.index + near.count, lane + static_cast<int32_t>(index));
  store_line(near.high + near.count, mass.high & wanted);
  store_line(near.low + near.count, mass.low & wanted);
  near.count += lane_count<F>;
}

void weigh(const float* x, int64_t n, float shift, float temperature, float limit, NearTokens& near) {
  using Integers = decltype(Wide{} < Wide{});
  constexpr int64_t lanes = lane_count<Wide>;
  constexpr int64_t at_once = 1024 * lanes;  // half of what the sum of a lane has room for
  // Logits below it weigh less than 2^-40: exp(-28) is 0.76 of that, and rounding brings none nearer. It is
  // NaN where the largest logit and the temperature are infinite; then no logit is below it.
  const float least = shift - 28.0f * temperature;
  near.count = 0;
  near.mass_of_all = 0;
  for (int64_t begin = 0; begin < n; begin += at_once) {
    Integers high{}, low{};
    const auto add = [&](Wide logit, int64_t index) CLOVER_INLINED {
      if (!any(~(logit < least))) return;
      const Wide scaled = (shift - logit) / temperature;
      // Also where shift is infinite: the largest is at distance 0, everything else (and NaN) infinitely far.
      const Wide far = logit == shift ? Wide{} : (scaled >= 0.0f ? scaled : Wide{} + __builtin_inff());
      const MassParts<Wide> mass(exp_lanes(-far));
      high += mass.high;
      low += mass.low;
      if (const Integers wanted = far <= limit; any(wanted)) keep(far, mass, wanted, index, near);
    };
    const int64_t end = n - begin < at_once ? n : begin + at_once;
    int64_t i = begin;
    for (; i + lanes <= end; i += lanes) add(load_lanes<Wide>(x + i), i);
    if (i < end) {
      float rest[lanes];
      for (int64_t lane = 0; lane < lanes; ++lane) rest[lane] = i + lane < end ? x[i + lane] : minus_infinity;
      add(load_lanes<Wide>(rest), i);
    }
    for (int64_t lane = 0; lane < lanes; ++lane) near.mass_of_all += whole_mass(high[lane], low[lane]);
  }
}

}  // namespace

template <>
const LogitLoops LoopsOf<LogitLoops, CLOVER_FAMILY>::loops{maximum, block_maxima, first_equal, sum_exp,
                                                           weigh};

}  // namespace clover::kernels::cpu
