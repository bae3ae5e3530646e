#pragma once

#include <cstdint>

#include "kernels/op/host_device.h"

// Loops over one row of logits.
namespace clover::kernels::cpu {

/// A probability relative to the largest, as a multiple of 2^-40: sums of integers do not depend on their
/// order.  It comes in two parts of 20 bits, into which fp32 cuts it.
CLOVER_HOST_DEVICE constexpr uint64_t whole_mass(int32_t high, int32_t low) {
  return (static_cast<uint64_t>(high) << 20) + static_cast<uint64_t>(low);
}

/// The most probable tokens of a row.
struct NearTokens {
  float* distance;  // of the logit from the largest, in units of temperature; this and the next three have
                    // room for near_room(n) tokens
  int32_t* high;    // the mass in two parts (whole_mass)
  int32_t* low;
  int32_t* index;
  int64_t count;
  uint64_t mass_of_all;  // of the whole row

  uint64_t mass(int64_t i) const { return whole_mass(high[i], low[i]); }
};
constexpr int64_t near_room(int64_t n) {
  return n + 15;  // whole vectors of the widest family
}

struct LogitLoops {
  /// Largest of n >= 0 values, NaN as -inf.
  float (*maximum)(const float* x, int64_t n);
  /// out[b] = maximum of x[b * block .. ); ceil(n / block) values; block is a multiple of 32.
  void (*block_maxima)(const float* x, int64_t n, int64_t block, float* out);
  /// Index of the first element equal to value, n if there is none.
  int64_t (*first_equal)(const float* x, int64_t n, float value);
  /// Sum of exp(x - shift) in one fixed order.
  float (*sum_exp)(const float* x, int64_t n, float shift);
  /// Finds near.mass_of_all and all tokens that have mass and a distance of at most `limit`, among others
  /// whose mass is set to 0.  distance = (shift - x) / temperature, at least 0, +inf for NaN; mass =
  /// exp(-distance), truncated.
  void (*weigh)(const float* x, int64_t n, float shift, float temperature, float limit, NearTokens& near);
};

}  // namespace clover::kernels::cpu
