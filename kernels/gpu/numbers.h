#pragma once

// Scalar arithmetic that GPU kernels and CPU code share: 16-bit floats, the project's own exponential, and
// bit operations.
#include <cstdint>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include "kernels/op/host_device.h"

namespace clover::kernels::cuda {

struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

/// As std::bit_cast.
template <class To, class From>
CLOVER_HOST_DEVICE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

CLOVER_HOST_DEVICE float minus_infinity() {
  return bits_as<float>(0xff800000u);
}

/// The larger of x and `best`; `best` if x is NaN.
CLOVER_HOST_DEVICE float larger(float x, float best) {
  return x > best ? x : best;
}

CLOVER_HOST_DEVICE float to_float(float x) {
  return x;
}
CLOVER_HOST_DEVICE float to_float(Bf16 x) {
  return bits_as<float>(static_cast<uint32_t>(x.bits) << 16);
}
CLOVER_HOST_DEVICE float to_float(Fp16 x) {
#if defined(__CUDA_ARCH__)
  return __half2float(bits_as<__half>(x.bits));
#elif defined(__CUDACC__)
  return 0;  // never called on nvcc's host side
#else
  return static_cast<float>(bits_as<_Float16>(x.bits));
#endif
}

/// to = x, rounded to nearest, ties to even.  For bf16 every NaN becomes 0x7fc0.
CLOVER_HOST_DEVICE void from_float(float x, float& to) {
  to = x;
}
CLOVER_HOST_DEVICE void from_float(float x, Bf16& to) {
#if defined(__CUDA_ARCH__)
  uint16_t rounded;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
#else
  const uint32_t bits = bits_as<uint32_t>(x);
  const uint16_t rounded = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
  to.bits = x == x ? rounded : uint16_t{0x7fc0};
}
/// Rounds both to bf16 and packs them into a word, `low` in its low half.  Unlike from_float, a NaN may
/// become any NaN.
CLOVER_HOST_DEVICE uint32_t pack_two_bf16(float low, float high) {
#if defined(__CUDA_ARCH__)
  uint32_t two;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  return two;
#else
  Bf16 first, second;
  from_float(low, first), from_float(high, second);
  return first.bits | static_cast<uint32_t>(second.bits) << 16;
#endif
}
CLOVER_HOST_DEVICE void from_float(float x, Fp16& to) {
#if defined(__CUDA_ARCH__)
  to.bits = bits_as<uint16_t>(__float2half_rn(x));
#elif defined(__CUDACC__)
  to.bits = 0;  // never called on nvcc's host side
#else
  to.bits = bits_as<uint16_t>(static_cast<_Float16>(x));
#endif
}

/// e^x, bit for bit exp_f32 (kernels/rows/activation.h): the project is compiled without fusing a * b + c
/// (--fmad=false, -ffp-contract=off).  x = n * ln 2 + r, e^x = 2^n * p, and the polynomial p is e^r.
CLOVER_HOST_DEVICE float exp_scalar(float x) {
  // Adding 1.5 * 2^23, whose bits are 0x4b400000, rounds to the nearest integer and leaves it in the low
  // bits.
  const float shifted = x * 1.44269504f + 12582912.0f;
  const int n = static_cast<int>(bits_as<uint32_t>(shifted) - 0x4b400000u);
  const float whole = shifted - 12582912.0f;  // n as a float
  // ln 2 in two parts: the first has so few bits that its product with n is exact.
  const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  float p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const int half_n = n >> 1;  // 2^n as a product of two powers, because 2^128 alone would overflow
  const float y = p * bits_as<float>(static_cast<uint32_t>(half_n + 127) << 23) *
                  bits_as<float>((static_cast<uint32_t>(n) - static_cast<uint32_t>(half_n) + 127u) << 23);
  // Computed for every x and then selected, which avoids a branch.
  return x < -87.3f ? 0.0f : x > 88.7f ? bits_as<float>(0x7f800000u) : x == x ? y : x;
}

CLOVER_HOST_DEVICE float silu_scalar(float x) {
  return x / (1.0f + exp_scalar(-x));
}

/// The index, from 0, of the highest set bit of `bits`, which is not 0.
CLOVER_HOST_DEVICE int highest_bit(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return 31 - __clz(static_cast<int>(bits));
#else
  return 31 - __builtin_clz(bits);
#endif
}
/// How many bits are set.
CLOVER_HOST_DEVICE int count_bits(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __popc(bits);
#else
  return __builtin_popcount(bits);
#endif
}

/// The upper 64 bits of the product a * b.
CLOVER_HOST_DEVICE uint64_t high_product(uint64_t a, uint64_t b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
#endif
}

}  // namespace clover::kernels::cuda
