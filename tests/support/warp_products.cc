#include "tests/support/warp_products.h"

#include <cstring>
#include <limits>

#include "tests/support/tensor_core_sum.h"

// Computes the 128 sums of a warp in integers.  A sum adds multiples of one unit, 2^(e - bits), which fit in
// 32 bits (tensor_core_sum.h names e and bits).  So a row of sums, eight columns, is a vector of 32-bit
// integers.
namespace clover::kernels::cuda::emulation {
namespace {

constexpr int depth = 16, rows = 16, columns = 8;
constexpr int unit_bits = 25;                                // the largest `bits`
using IntVector = int32_t __attribute__((vector_size(32)));  // 8 integers
using UintVector = uint32_t __attribute__((vector_size(32)));

/// Eight numbers x = mantissa * 2^(exponent - mantissa_bits).  not_finite and is_nan: -1 where true, else 0.
struct Decoded {
  IntVector mantissa, exponent, not_finite, is_nan;
};

/// The operands of the warp: an integer holds the 16 bits of a format.
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

CLOVER_ALWAYS_INLINE void decode(const int32_t* from, const NumberFormat& format, Decoded& to) {
  const int bias = 1 - format.min_exponent, exponent_mask = (1 << (15 - format.mantissa_bits)) - 1;
  IntVector x;
  std::memcpy(&x, from, sizeof x);
  const IntVector field = x >> format.mantissa_bits & exponent_mask;
  const IntVector subnormal = field == 0;  // -1 where true, else 0
  const IntVector magnitude =
      (x & ((1 << format.mantissa_bits) - 1)) | (~subnormal & (1 << format.mantissa_bits));
  const IntVector minus = -(x >> 15);
  to.mantissa = (magnitude ^ minus) - minus;
  const IntVector is_zero = magnitude == 0;
  to.exponent = (is_zero & exponent_of_zero) | (~is_zero & (field - bias - subnormal));
  to.not_finite = field == exponent_mask;
  to.is_nan = to.not_finite & ((x & ((1 << format.mantissa_bits) - 1)) != 0);
}

/// The sums, by row.  units: the sum of the truncated products, d_units: the truncated d, both in units of
/// 2^(largest - bits); largest: the largest exponent.  not_finite, is_nan: -1 where an operand or d is not
/// finite or NaN, else 0.
struct Sums {
  IntVector units[rows], d_units[rows], largest[rows], not_finite[rows], is_nan[rows];
};

/// Whether any element of a or b is not 0.
CLOVER_ALWAYS_INLINE int32_t any_of(const IntVector& a, const IntVector& b) {
  int32_t any = 0;
  for (int i = 0; i < 8; ++i) any |= a[i] | b[i];
  return any;
}

/// `missing`: unit_bits - bits.
CLOVER_ALWAYS_INLINE void sum_up(const Raw& raw, const float (&d)[rows][columns], const NumberFormat& format,
                                 int missing, Sums& sums) {
  Decoded left[rows * depth / 8], right[depth];
  for (int i = 0; i < rows * depth / 8; ++i) decode(&raw.left[0][0] + 8 * i, format, left[i]);
  IntVector not_finite = {}, is_nan = {};  // of the columns
  for (int k = 0; k < depth; ++k) {
    decode(raw.right[k], format, right[k]);
    not_finite |= right[k].not_finite;
    is_nan |= right[k].is_nan;
  }
  // A product of two mantissas has 2 * mantissa_bits binary places; shifted left, it has unit_bits.
  const int left_shift = unit_bits - 2 * format.mantissa_bits;
  for (int row = 0; row < rows; ++row) {
    IntVector bits_of_d;
    std::memcpy(&bits_of_d, d[row], sizeof bits_of_d);
    const IntVector field = bits_of_d >> 23 & 255, subnormal = field == 0;
    const IntVector exponent_of_d = field - 127 - subnormal;
    int32_t mantissa[depth], exponent[depth];
    std::memcpy(mantissa, &left[2 * row].mantissa, 32);
    std::memcpy(mantissa + 8, &left[2 * row + 1].mantissa, 32);
    std::memcpy(exponent, &left[2 * row].exponent, 32);
    std::memcpy(exponent + 8, &left[2 * row + 1].exponent, 32);
    IntVector largest = exponent_of_d;
    for (int k = 0; k < depth; ++k) {
      const IntVector of_product = right[k].exponent + exponent[k];
      largest = of_product > largest ? of_product : largest;
    }
    const IntVector unit_exponent = largest + missing;  // of a unit, plus unit_bits
    IntVector units = {};
    for (int k = 0; k < depth; ++k) {
      const IntVector product = right[k].mantissa * mantissa[k];
      const IntVector minus = product >> 31, magnitude = ((product ^ minus) - minus) << left_shift;
      const IntVector distance = unit_exponent - (right[k].exponent + exponent[k]);
      const IntVector right_shift = distance > 31 ? IntVector{} + 31 : distance;
      const IntVector truncated = (IntVector)((UintVector)magnitude >> (UintVector)right_shift);
      units += (truncated ^ minus) - minus;
    }
    const IntVector magnitude = ((bits_of_d & 0x7fffff) | (~subnormal & 0x800000)) << (unit_bits - 23);
    const IntVector distance = unit_exponent - exponent_of_d, minus = bits_of_d >> 31;
    const IntVector right_shift = distance > 31 ? IntVector{} + 31 : distance;
    const IntVector truncated = (IntVector)((UintVector)magnitude >> (UintVector)right_shift);
    sums.units[row] = units;
    sums.d_units[row] = (truncated ^ minus) - minus;
    sums.largest[row] = largest;
    const IntVector d_not_finite = field == 255, d_is_nan = d_not_finite & ((bits_of_d & 0x7fffff) != 0);
    sums.not_finite[row] =
        not_finite | d_not_finite | any_of(left[2 * row].not_finite, left[2 * row + 1].not_finite);
    sums.is_nan[row] = is_nan | d_is_nan | any_of(left[2 * row].is_nan, left[2 * row + 1].is_nan);
  }
}

void sum_up_portable(const Raw& raw, const float (&d)[rows][columns], const NumberFormat& format, int missing,
                     Sums& sums) {
  sum_up(raw, d, format, missing, sums);
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) void sum_up_avx2(const Raw& raw, const float (&d)[rows][columns],
                                                 const NumberFormat& format, int missing, Sums& sums) {
  sum_up(raw, d, format, missing, sums);
}
const auto chosen_sum_up = __builtin_cpu_supports("avx2") ? &sum_up_avx2 : &sum_up_portable;
#else
constexpr auto chosen_sum_up = &sum_up_portable;
#endif

#undef CLOVER_ALWAYS_INLINE

/// units * 2^(largest - bits), truncated to fp32.
inline float truncate_to_float(int64_t units, int largest, int bits) {
  const double sum = static_cast<double>(units) * power_of_two(largest - bits);
  const float nearest = static_cast<float>(sum);
  const bool too_large = std::isfinite(nearest) & (std::abs(nearest) > std::abs(sum));
  return bits_as<float>(bits_as<uint32_t>(nearest) - too_large);
}

/// One sum by tensor_core_sum, for rows and columns with infinite numbers.
float scalar_sum(const Raw& raw, int row, int column, float d, const NumberFormat& format, int bits) {
  const auto read = [&](OperandVector& line, int k, int32_t from) {
    line.x[k] = format.to_float(static_cast<uint16_t>(from));
    line.exponent[k] = exponent_of(line.x[k], format.min_exponent);
  };
  OperandVector left, right;
  for (int k = 0; k < depth; ++k) read(left, k, raw.left[row][k]), read(right, k, raw.right[k][column]);
  return tensor_core_sum(d, left, right, bits);
}

}  // namespace

void multiply_add_warp(float* const (&d)[lanes], const LeftOperand& left, const RightOperand& right,
                       const NumberFormat& format, int bits) {
  Raw raw;
  unpack(left, right, raw);
  alignas(32) float sum[rows][columns];
  // Calls action(sum of a lane, its row, its column) for all sums.
  const auto for_all = [&](const auto& action) {
    for (unsigned lane = 0; lane < lanes; ++lane)
      for (unsigned i = 0; i < 4; ++i) action(d[lane][i], lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
  };
  for_all([&](float lane_sum, unsigned row, unsigned column) { sum[row][column] = lane_sum; });
  Sums sums;
  chosen_sum_up(raw, sum, format, unit_bits - bits, sums);
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      float& value = sum[row][column];
      if (sums.is_nan[row][column] != 0) {
        value = std::numeric_limits<float>::quiet_NaN();
      } else if (sums.not_finite[row][column] != 0) {
        value = scalar_sum(raw, row, column, value, format, bits);
      } else {
        value = truncate_to_float(int64_t{sums.units[row][column]} + sums.d_units[row][column],
                                  sums.largest[row][column], bits);
      }
    }
  }
  for_all([&](float& lane_sum, unsigned row, unsigned column) { lane_sum = sum[row][column]; });
}

}  // namespace clover::kernels::cuda::emulation
