#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/gpu/numbers.h"

// The arithmetic of one sum of a tensor core product.
namespace clover::kernels::cuda::emulation {

/// A row of the left operand or a column of the right one.
struct OperandVector {
  float x[16];
  int exponent[16];  // exponent_of(x[k])
};

constexpr int exponent_of_zero = -126;
/// The exponent of x, at least `min`, the smallest exponent of normal numbers in its format.
inline int exponent_of(float x, int min) {
  return x == 0 ? exponent_of_zero : std::max(static_cast<int>(bits_as<uint32_t>(x) >> 23 & 255) - 127, min);
}

inline double power_of_two(int exponent) {
  return bits_as<double>(static_cast<uint64_t>(1023 + exponent) << 52);
}

/// c + a . b as tensor cores of sm_90 compute it.  The 16 products are exact.  They and c are truncated to
/// multiples of 2^(e - bits), where e is the largest exponent among them, and added exactly; so their order
/// does not matter.  The sum is truncated to fp32.  `bits` is 25 on sm_90, for mma.sync and wgmma. ("MMA-Sim:
/// Bit-Accurate Reference Model of Tensor Cores and Matrix Cores", arXiv 2511.10909.)
inline float tensor_core_sum(float c, const OperandVector& a, const OperandVector& b, int bits) {
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
