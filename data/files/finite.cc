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

/// Masks for the values packed in one 64-bit word: `bits` selects their exponent bits, and adding `carry`
/// sets a value's sign bit exactly if all of these are set, which is so of infinities and NaN alone.
struct Exponents {
  uint64_t bits, carry, sign;
};

constexpr Exponents of_16_bits(uint64_t exponent, uint64_t lowest) {
  constexpr uint64_t each = 0x0001000100010001ull;
  return {exponent * each, lowest * each, 0x8000 * each};
}

constexpr Exponents bfloat16_exponents = of_16_bits(0x7f80, 0x0080);
constexpr Exponents half_exponents = of_16_bits(0x7c00, 0x0400);
constexpr Exponents float_exponents{0x7f8000007f800000ull, 0x0080000000800000ull, 0x8000000080000000ull};
constexpr Exponents double_exponents{0x7ff0000000000000ull, 0x0010000000000000ull, 0x8000000000000000ull};

uint64_t word_at(const char* bytes, size_t count = sizeof(uint64_t)) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, count);
  return word;
}

bool all_finite_bytes(const char* bytes, int64_t size, const Exponents& exponents) {
  constexpr int64_t block = 1 << 14;  // words a thread checks between looks at the others' results
  const int64_t words = size / 8;
  const auto overflown = [&](uint64_t word) { return (word & exponents.bits) + exponents.carry; };
  std::atomic<bool> finite{(overflown(word_at(bytes + 8 * words, size % 8)) & exponents.sign) == 0};
  at::parallel_for(0, words, block, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end && finite.load(std::memory_order_relaxed); at += block) {
      uint64_t found = 0;
      for (int64_t i = at; i < std::min(at + block, end); ++i) found |= overflown(word_at(bytes + 8 * i));
      if ((found & exponents.sign) != 0) finite = false;
    }
  });
  return finite;
}

std::string spelled(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

double largest_of(at::ScalarType dtype) {
  if (dtype == at::kHalf) return 65504;
  if (dtype == at::kBFloat16) return std::numeric_limits<c10::BFloat16>::max();
  return std::numeric_limits<float>::max();
}

}  // namespace

bool all_finite(const at::Tensor& tensor) {
  if (!tensor.is_floating_point() || tensor.numel() == 0) return true;
  if (!tensor.is_cpu()) return at::isfinite(tensor).all().item<bool>();
  const at::Tensor dense = tensor.contiguous();
  const auto finite = [&](const Exponents& exponents) {
    return all_finite_bytes(static_cast<const char*>(dense.const_data_ptr()),
                            static_cast<int64_t>(dense.nbytes()), exponents);
  };
  switch (dense.scalar_type()) {
    case at::kBFloat16:
      return finite(bfloat16_exponents);
    case at::kHalf:
      return finite(half_exponents);
    case at::kFloat:
      return finite(float_exponents);
    case at::kDouble:
      return finite(double_exponents);
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
  const std::string narrow = dtype == at::kHalf ? "float16" : "bfloat16";
  throw InputError(where + ": tensor " + name + " holds values as large as " + spelled(largest) + ", and " +
                   narrow + " none above " + spelled(largest_of(dtype)) + ": use --dtype " +
                   (dtype == at::kHalf ? "bfloat16 or float32." : "float32."));
}

}  // namespace clover::data
