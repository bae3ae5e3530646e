#include "tests/support/warp_products.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "tests/support/tensor_core_sum.h"

// What emulated kernels multiply with, against the definition of one sum.
namespace clover::kernels::cuda::emulation {
namespace {

/// 16-bit numbers of every kind: of like size (small ones if `tiny`: a zero's exponent may then be the
/// largest), of any, zeros, subnormal ones, infinite ones and NaN.
class Numbers {
 public:
  Numbers(const NumberFormat& number, bool tiny, int seed) : number_(number), tiny_(tiny), random_(seed) {}
  uint16_t next(bool finite) {
    const unsigned kind = random_() % 40;
    const auto any = static_cast<uint16_t>(random_());
    const unsigned exponents = (1u << (15 - number_.mantissa_bits)) - 1,
                   mantissas = (1u << number_.mantissa_bits) - 1;
    const auto of = [&](unsigned exponent) {
      return static_cast<uint16_t>((any & (0x8000 | mantissas)) | exponent << number_.mantissa_bits);
    };
    if (kind < 20) return of(exponents / (tiny_ ? 4 : 2) + random_() % 6);
    if (kind < 25) return of(random_() % exponents);
    if (kind < 35) return static_cast<uint16_t>(kind % 2 ? 0x8000 : 0);
    if (kind == 39 && !finite) return of(exponents);
    return of(0);
  }

 private:
  NumberFormat number_;
  bool tiny_;
  std::mt19937 random_;
};

void expect_the_sums_of(const NumberFormat& number, int bits, bool finite, int seed) {
  const bool tiny = seed % 3 == 0;
  Numbers numbers(number, tiny, seed);
  std::mt19937 random(seed);
  LeftOperand left;
  RightOperand right;
  const auto two = [&] { return numbers.next(finite) | static_cast<uint32_t>(numbers.next(finite)) << 16; };
  for (auto& lane : left.words)
    for (uint32_t& word : lane) word = two();
  for (auto& lane : right.words)
    for (uint32_t& word : lane) word = two();
  float d[lanes][4], expected[lanes][4];
  for (auto& lane : d) {
    for (float& x : lane) {
      const unsigned kind = random() % 16;
      x = tiny || kind == 0 ? 0.0f
                            : std::ldexp(static_cast<float>(static_cast<int>(random() % 2000001) - 1000000),
                                         kind == 1 ? static_cast<int>(random() % 200) - 140 : -20);
      if (kind == 2 && !finite) x = bits_as<float>(0x7f800000u | static_cast<uint32_t>(random() % 2));
    }
  }
  const auto line = [&](const auto& word_of) {  // word_of(lane of four, word of two)
    OperandVector line;
    for (unsigned k = 0; k < 16; ++k) {
      line.x[k] = number.to_float(static_cast<uint16_t>(word_of(k % 8 / 2, k / 8) >> k % 2 * 16));
      line.exponent[k] = exponent_of(line.x[k], number.min_exponent);
    }
    return line;
  };
  for (unsigned lane = 0; lane < lanes; ++lane) {
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned column = lane % 4 * 2 + i % 2;
      expected[lane][i] = tensor_core_sum(
          d[lane][i], line([&](unsigned of_four, unsigned word) {
            return left.words[lane / 4 * 4 + of_four][i / 2 + 2 * word];
          }),
          line([&](unsigned of_four, unsigned word) { return right.words[column * 4 + of_four][word]; }),
          bits);
    }
  }
  float* places[lanes];
  for (unsigned lane = 0; lane < lanes; ++lane) places[lane] = d[lane];
  multiply_add_warp(places, left, right, number, bits);
  for (unsigned lane = 0; lane < lanes; ++lane) {
    for (unsigned i = 0; i < 4; ++i) {
      if (std::isnan(expected[lane][i])) {
        EXPECT_TRUE(std::isnan(d[lane][i])) << seed;
      } else {
        EXPECT_EQ(bits_as<uint32_t>(d[lane][i]), bits_as<uint32_t>(expected[lane][i]))
            << seed << ", lane " << lane << ", sum " << i;
      }
    }
  }
}

TEST(WarpProducts, AreTheSumsOfTensorCores) {
  for (int seed = 0; seed < 200; ++seed) {
    for (const bool finite : {true, false}) {
      for (const int bits : {25, 24}) {
        expect_the_sums_of(format_of(Bf16{}), bits, finite, seed);
        expect_the_sums_of(format_of(Fp16{}), bits, finite, seed);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace clover::kernels::cuda::emulation
