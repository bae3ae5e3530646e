#pragma once

#include "kernels/body/lanes.h"

// Scans over one row of logits.
namespace clover::kernels::cpu {
namespace {

const float minus_infinity = -__builtin_inff();

float exp_one(float x) {
  return exp_lanes(splat(x))[0];
}

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
    uint64_t words[4];
    std::memcpy(words, &hit, sizeof words);
    if ((words[0] | words[1]) | (words[2] | words[3])) break;
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

void boltzmann(const float* x, int64_t n, float shift, float temperature, float* distance, float* weight) {
  for (int64_t i = 0; i < n; i += 8) {
    const bool whole = i + 8 <= n;
    const F8 logit = whole ? load8(x + i) : load_part(x + i, n - i, minus_infinity);
    const F8 scaled = (shift - logit) / temperature;
    // Also where shift is infinite: the largest is at distance 0, everything else (and NaN) infinitely far.
    const F8 far = logit == shift ? splat(0.0f) : (scaled >= 0.0f ? scaled : splat(__builtin_inff()));
    const F8 mass = exp_lanes(-far);
    if (whole) {
      store8(distance + i, far);
      store8(weight + i, mass);
    } else {
      store_part(distance + i, n - i, far);
      store_part(weight + i, n - i, mass);
    }
  }
}

}  // namespace
}  // namespace clover::kernels::cpu
