#include "data/files/finite.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>

#include "data/files/error.h"

namespace clover::data {
namespace {

/// Masks for the floating-point values packed in one 64-bit word.  A value is infinite or NaN if all of its
/// exponent bits are set.  Then, and only then, adding 1 to the exponent carries into the sign bit.
struct ExponentMasks {
  uint64_t exponent;    // all exponent bits of each value
  uint64_t lowest_bit;  // the lowest exponent bit of each value
  uint64_t sign;        // the sign bit of each value
};

constexpr ExponentMasks masks_of_16_bit_values(uint64_t exponent, uint64_t lowest_bit) {
  constexpr uint64_t four_ones =
      0x0001000100010001ull;  // multiplying by it copies 16 bits to all four values
  return {exponent * four_ones, lowest_bit * four_ones, 0x8000 * four_ones};
}

constexpr ExponentMasks bfloat16_masks = masks_of_16_bit_values(0x7f80, 0x0080);
constexpr ExponentMasks half_masks = masks_of_16_bit_values(0x7c00, 0x0400);
constexpr ExponentMasks float_masks{0x7f8000007f800000ull, 0x0080000000800000ull, 0x8000000080000000ull};
constexpr ExponentMasks double_masks{0x7ff0000000000000ull, 0x0010000000000000ull, 0x8000000000000000ull};

/// `count` bytes as a word, zeros after them.
uint64_t word_at(const char* bytes, size_t count = sizeof(uint64_t)) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, count);
  return word;
}

bool all_finite_bytes(const char* bytes, int64_t size, const ExponentMasks& masks) {
  constexpr int64_t block = 1 << 14;  // words that a thread checks before it looks at the others' results
  const int64_t words = size / 8;
  const auto carry_into_sign = [&](uint64_t word) { return (word & masks.exponent) + masks.lowest_bit; };
  std::atomic<bool> finite{(carry_into_sign(word_at(bytes + 8 * words, size % 8)) & masks.sign) == 0};
  at::parallel_for(0, words, block, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end && finite.load(std::memory_order_relaxed); first += block) {
      uint64_t carries = 0;
      for (int64_t i = first; i < std::min(first + block, end); ++i)
        carries |= carry_into_sign(word_at(bytes + 8 * i));
      if ((carries & masks.sign) != 0) finite = false;
    }
  });
  return finite;
}

std::string to_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

double max_of(at::ScalarType dtype) {
  if (dtype == at::kHalf) return 65504;
  if (dtype == at::kBFloat16) return std::numeric_limits<c10::BFloat16>::max();
  return std::numeric_limits<float>::max();
}

}  // namespace

bool all_finite(const at::Tensor& tensor) {
  if (!tensor.is_floating_point() || tensor.numel() == 0) return true;
  if (!tensor.is_cpu()) return at::isfinite(tensor).all().item<bool>();
  const at::Tensor dense = tensor.contiguous();
  const auto finite = [&](const ExponentMasks& masks) {
    return all_finite_bytes(static_cast<const char*>(dense.const_data_ptr()),
                            static_cast<int64_t>(dense.nbytes()), masks);
  };
  switch (dense.scalar_type()) {
    case at::kBFloat16:
      return finite(bfloat16_masks);
    case at::kHalf:
      return finite(half_masks);
    case at::kFloat:
      return finite(float_masks);
    case at::kDouble:
      return finite(double_masks);
    default:
      return at::isfinite(dense.to(at::kFloat)).all().item<bool>();
  }
}

at::Tensor cast_finite(const std::string& where, const std::string& name, const at::Tensor& tensor,
                       at::ScalarType dtype) {
  if (!tensor.is_floating_point()) return tensor;
  if (!all_finite(tensor))
    throw InputError(where + ": tensor " + name + " holds what is no finite number: use other heads.");
  const at::Tensor result = tensor.to(dtype);
  if (result.scalar_type() == tensor.scalar_type() || all_finite(result)) return result;
  const double largest = tensor.detach().abs().max().to(at::kDouble).item<double>();
  const std::string sentence = where + ": tensor " + name + " holds values as large as " + to_text(largest) +
                               ", and " +
                               (dtype == at::kHalf    ? "float16"
                                : dtype == at::kFloat ? "float32"
                                                      : "bfloat16") +
                               " none above " + to_text(max_of(dtype)) + ": use ";
  throw InputError(sentence + (dtype == at::kHalf    ? "--dtype bfloat16 or float32."
                               : dtype == at::kFloat ? "other heads."
                                                     : "--dtype float32."));
}

}  // namespace clover::data
