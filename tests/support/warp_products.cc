#include "tests/support/warp_products.h"

#include <cstring>
#include <limits>

#include "tests/support/tensor_core_sum.h"

// All 128 sums of a warp at once, in whole numbers: a sum's products are multiples of the unit that it is cut
// off to, so eight columns are a vector of 32-bit integers.
namespace clover::kernels::cuda::emulation {
namespace {

constexpr int depth = 16, rows = 16, columns = 8;
constexpr int unit_bits = 25;  // below the largest exponent, where nothing is missing
using Eight = int32_t __attribute__((vector_size(32)));
using EightUnsigned = uint32_t __attribute__((vector_size(32)));

/// Numbers x = mantissa * 2^(exponent - mantissa_bits), eight a vector; all ones where one is not finite,
/// where it is NaN.
struct Decoded {
  Eight mantissa, exponent, not_finite, is_nan;
};

/// The 16 bits of each number, one an integer.
struct Raw {
  alignas(32) int32_t left[rows][depth];
  alignas(32) int32_t right[depth][columns];
};

inline void unpack(const LeftOperand& left, const RightOperand& right, Raw& raw) {
  for (unsigned lane = 0; lane < lanes; ++lane) {
    const unsigned group = lane / 4, pair = lane % 4 * 2;
    for (unsigned i = 0; i < 4; ++i) {
      int32_t* const to = &raw.left[group + i % 2 * 8][pair + i / 2 * 8];
      to[0] = static_cast<int32_t>(left.words[lane][i] & 0xffff);
      to[1] = static_cast<int32_t>(left.words[lane][i] >> 16);
    }
    for (unsigned i = 0; i < 2; ++i) {
      raw.right[pair + i * 8][group] = static_cast<int32_t>(right.words[lane][i] & 0xffff);
      raw.right[pair + i * 8 + 1][group] = static_cast<int32_t>(right.words[lane][i] >> 16);
    }
  }
}

// The bodies below are compiled once for any CPU and once for those with AVX2.
#define CLOVER_ALWAYS_INLINE inline __attribute__((always_inline))

CLOVER_ALWAYS_INLINE void decode(const int32_t* from, const Number& number, Decoded& to) {
  const int bias = 1 - number.least_exponent, exponent_mask = (1 << (15 - number.mantissa_bits)) - 1;
  Eight x;
  std::memcpy(&x, from, sizeof x);
  const Eight field = x >> number.mantissa_bits & exponent_mask;
  const Eight subnormal = field == 0;  // all ones, or 0
  const Eight magnitude =
      (x & ((1 << number.mantissa_bits) - 1)) | (~subnormal & (1 << number.mantissa_bits));
  const Eight minus = -(x >> 15);
  to.mantissa = (magnitude ^ minus) - minus;
  const Eight is_zero = magnitude == 0;
  to.exponent = (is_zero & exponent_of_zero) | (~is_zero & (field - bias - subnormal));
  to.not_finite = field == exponent_mask;
  to.is_nan = to.not_finite & ((x & ((1 << number.mantissa_bits) - 1)) != 0);
}

/// units[r]: of each sum of row r without d, in units of 2^(largest[r] - bits); all ones where an operand or
/// d is not finite, where it is NaN.
struct Sums {
  Eight units[rows], of_d[rows], largest[rows], not_finite[rows], is_nan[rows];
};

CLOVER_ALWAYS_INLINE int32_t any_of(const Eight& a, const Eight& b) {
  int32_t any = 0;
  for (int i = 0; i < 8; ++i) any |= a[i] | b[i];
  return any;
}

CLOVER_ALWAYS_INLINE void sum_up(const Raw& raw, const float (&d)[rows][columns], const Number& number,
                                 int missing, Sums& sums) {
  Decoded left[rows * depth / 8], right[depth];
  for (int i = 0; i < rows * depth / 8; ++i) decode(&raw.left[0][0] + 8 * i, number, left[i]);
  Eight not_finite = {}, is_nan = {};  // of the columns
  for (int k = 0; k < depth; ++k) {
    decode(raw.right[k], number, right[k]);
    not_finite |= right[k].not_finite;
    is_nan |= right[k].is_nan;
  }
  // A product has two numbers' bits behind its point, and its exponent is at most the largest.
  const int ahead = unit_bits - 2 * number.mantissa_bits;
  for (int row = 0; row < rows; ++row) {
    Eight bits_of_d;
    std::memcpy(&bits_of_d, d[row], sizeof bits_of_d);
    const Eight field = bits_of_d >> 23 & 255, subnormal = field == 0;
    const Eight exponent_of_d = field - 127 - subnormal;
    int32_t mantissa[depth], exponent[depth];
    std::memcpy(mantissa, &left[2 * row].mantissa, 32);
    std::memcpy(mantissa + 8, &left[2 * row + 1].mantissa, 32);
    std::memcpy(exponent, &left[2 * row].exponent, 32);
    std::memcpy(exponent + 8, &left[2 * row + 1].exponent, 32);
    Eight largest = exponent_of_d;
    for (int k = 0; k < depth; ++k) {
      const Eight of_product = right[k].exponent + exponent[k];
      largest = of_product > largest ? of_product : largest;
    }
    const Eight cut = largest + missing;
    Eight units = {};
    for (int k = 0; k < depth; ++k) {
      const Eight product = right[k].mantissa * mantissa[k];
      const Eight minus = product >> 31, magnitude = ((product ^ minus) - minus) << ahead;
      const Eight apart = cut - (right[k].exponent + exponent[k]);
      const Eight by = apart > 31 ? Eight{} + 31 : apart;
      const Eight kept = (Eight)((EightUnsigned)magnitude >> (EightUnsigned)by);
      units += (kept ^ minus) - minus;
    }
    const Eight magnitude = ((bits_of_d & 0x7fffff) | (~subnormal & 0x800000)) << (unit_bits - 23);
    const Eight apart = cut - exponent_of_d, minus = bits_of_d >> 31;
    const Eight by = apart > 31 ? Eight{} + 31 : apart;
    const Eight kept = (Eight)((EightUnsigned)magnitude >> (EightUnsigned)by);
    sums.units[row] = units;
    sums.of_d[row] = (kept ^ minus) - minus;
    sums.largest[row] = largest;
    const Eight d_not_finite = field == 255, d_is_nan = d_not_finite & ((bits_of_d & 0x7fffff) != 0);
    sums.not_finite[row] =
        not_finite | d_not_finite | any_of(left[2 * row].not_finite, left[2 * row + 1].not_finite);
    sums.is_nan[row] = is_nan | d_is_nan | any_of(left[2 * row].is_nan, left[2 * row + 1].is_nan);
  }
}

void sum_up_anywhere(const Raw& raw, const float (&d)[rows][columns], const Number& number, int missing,
                     Sums& sums) {
  sum_up(raw, d, number, missing, sums);
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) void sum_up_avx2(const Raw& raw, const float (&d)[rows][columns],
                                                 const Number& number, int missing, Sums& sums) {
  sum_up(raw, d, number, missing, sums);
}
const auto chosen_sum_up = __builtin_cpu_supports("avx2") ? &sum_up_avx2 : &sum_up_anywhere;
#else
constexpr auto chosen_sum_up = &sum_up_anywhere;
#endif

#undef CLOVER_ALWAYS_INLINE

/// The sum of units, cut off to fp32.
inline float cut_off(int64_t units, int largest, int bits) {
  const double sum = static_cast<double>(units) * power_of_two(largest - bits);
  const float nearest = static_cast<float>(sum);
  const bool too_large = std::isfinite(nearest) & (std::abs(nearest) > std::abs(sum));
  return bits_as<float>(bits_as<uint32_t>(nearest) - too_large);
}

/// Where numbers are infinite.
float sum_plainly(const Raw& raw, int row, int column, float d, const Number& number, int bits) {
  const auto read = [&](Line& line, int k, int32_t from) {
    line.x[k] = number.to_float(static_cast<uint16_t>(from));
    line.exponent[k] = exponent_of(line.x[k], number.least_exponent);
  };
  Line left, right;
  for (int k = 0; k < depth; ++k) read(left, k, raw.left[row][k]), read(right, k, raw.right[k][column]);
  return sum_at_once(d, left, right, bits);
}

}  // namespace

void multiply_add_warp(float* const (&d)[lanes], const LeftOperand& left, const RightOperand& right,
                       const Number& number, int bits) {
  Raw raw;
  unpack(left, right, raw);
  alignas(32) float sum[rows][columns];
  const auto for_all = [&](const auto& action) {
    for (unsigned lane = 0; lane < lanes; ++lane)
      for (unsigned i = 0; i < 4; ++i) action(d[lane][i], lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
  };
  for_all([&](float of_lane, unsigned row, unsigned column) { sum[row][column] = of_lane; });
  Sums sums;
  chosen_sum_up(raw, sum, number, unit_bits - bits, sums);
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      float& of = sum[row][column];
      if (sums.is_nan[row][column] != 0) {
        of = std::numeric_limits<float>::quiet_NaN();
      } else if (sums.not_finite[row][column] != 0) {
        of = sum_plainly(raw, row, column, of, number, bits);
      } else {
        of = cut_off(int64_t{sums.units[row][column]} + sums.of_d[row][column], sums.largest[row][column],
                     bits);
      }
    }
  }
  for_all([&](float& of_lane, unsigned row, unsigned column) { of_lane = sum[row][column]; });
}

}  // namespace clover::kernels::cuda::emulation
