#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/gpu/numbers.h"

// How tensor cores sum up.
namespace clover::kernels::cuda::emulation {

/// A row of a product's left operand or a column of its right one.
struct Line {
  float x[16];
  int exponent[16];
};

constexpr int exponent_of_zero = -126;
inline int exponent_of(float x, int least) {
  return x == 0 ? exponent_of_zero
                : std::max(static_cast<int>(bits_as<uint32_t>(x) >> 23 & 255) - 127, least);
}

inline double power_of_two(int exponent) {
  return bits_as<double>(static_cast<uint64_t>(1023 + exponent) << 52);
}

/// c + a . b as tensor cores of sm_90 sum it up: products are exact; all 17 are cut off `bits` (sm_90: 25)
/// below the largest exponent, added, and the sum is cut off to fp32, so their order says nothing. ("MMA-Sim:
/// Bit-Accurate Reference Model of Tensor Cores and Matrix Cores", arXiv 2511.10909, for mma.sync and wgmma
/// alike.)
inline float sum_at_once(float c, const Line& a, const Line& b, int bits) {
  double exact = c, products[16];
  int largest = exponent_of(c, exponent_of_zero);
  for (int k = 0; k < 16; ++k) {
    products[k] = static_cast<double>(a.x[k]) * b.x[k];
    exact += products[k];
    largest = std::max(largest, a.exponent[k] + b.exponent[k]);
  }
  if (!std::isfinite(exact)) return static_cast<float>(exact);
  const double scale = power_of_two(bits - largest);
  int64_t units = static_cast<int64_t>(c * scale);
  for (const double product : products) units += static_cast<int64_t>(product * scale);
  const double sum = static_cast<double>(units) * power_of_two(largest - bits);
  const float nearest = static_cast<float>(sum);
  return std::isfinite(nearest) && std::abs(nearest) > std::abs(sum) ? std::nextafter(nearest, 0.0f)
                                                                     : nearest;
}

}  // namespace clover::kernels::cuda::emulation
