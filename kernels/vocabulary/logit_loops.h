#pragma once

#include <cstdint>

#include "kernels/op/host_device.h"

// Loops over one row of logits, compiled once for each instruction family (kernels/cpu/family.h).
namespace clover::kernels::cpu {

/// The mass of a token: its probability divided by the largest one, as an integer in units of 2^-40, because
/// sums of integers do not depend on their order.  fp32 arithmetic yields it in two parts: mass = high * 2^20
/// + low.
CLOVER_HOST_DEVICE constexpr uint64_t combine_mass(int32_t high, int32_t low) {
  return (static_cast<uint64_t>(high) << 20) + static_cast<uint64_t>(low);
}

/// The tokens of a row of n logits whose logits are near the largest one.  The arrays have room for
/// near_capacity(n) elements.
struct NearTokens {
  float* distance;      // [count] (largest logit - logit) / temperature
  int32_t* high;        // [count] the mass in two parts (combine_mass)
  int32_t* low;         // [count]
  int32_t* index;       // [count] in the row
  int64_t count;        // of tokens
  uint64_t total_mass;  // of all tokens of the row, the far ones included

  uint64_t mass(int64_t i) const { return combine_mass(high[i], low[i]); }
};
constexpr int64_t near_capacity(int64_t n) {
  return n + 15;  // tokens are appended in whole vectors, of up to 16 lanes
}

struct LogitLoops {
  /// Largest of n >= 0 values, NaN as -inf.
  float (*maximum)(const float* x, int64_t n);
  /// out[b] = maximum of x[b * block .. min(n, (b + 1) * block)), for b < ceil(n / block).
  void (*block_maxima)(const float* x, int64_t n, int64_t block, float* out);
  /// Index of the first element that equals `value`; n if there is none.
  int64_t (*first_equal)(const float* x, int64_t n, float value);
  /// Sum of exp(x[i] - shift) over i, in an order that depends on n alone.
  float (*sum_exp)(const float* x, int64_t n, float shift);
  /// Computes near.total_mass and appends to `near` all tokens of non-zero mass whose distance is at most
  /// `limit`; other tokens may be appended too, with mass 0.  `shift` is the row's largest logit.
  /// distance = (shift - x) / temperature, at least 0, +inf for NaN; mass = floor(exp(-distance) * 2^40).
  void (*collect_near)(const float* x, int64_t n, float shift, float temperature, float limit,
                       NearTokens& near);
};

}  // namespace clover::kernels::cpu
