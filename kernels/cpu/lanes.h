#pragma once

#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

// SIMD lanes for the *_simd.cc and *_amx.cc files: 8 or 16 fp32 numbers, loaded from and stored to fp32, bf16
// or fp16.  All operations are IEEE operations with an exactly defined result, so that every instruction
// family computes the same bits.  A fused multiply-add is always an explicit madd().
namespace clover::kernels::cpu {
namespace {

// Vectors, named after the type of a lane and the number of lanes: F32x8 is eight floats.
using F32x8 = float __attribute__((vector_size(32)));
using I32x8 = int32_t __attribute__((vector_size(32)));
using U32x8 = uint32_t __attribute__((vector_size(32)));
using U16x8 = uint16_t __attribute__((vector_size(16)));

struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

#define CLOVER_INLINE inline __attribute__((always_inline))
#define CLOVER_INLINED __attribute__((always_inline))  // the same for a lambda

template <int I>
struct Constant {
  constexpr operator int() const { return I; }
};
/// An unrolled loop: calls body(0) .. body(N - 1).  The arguments are compile-time constants (Constant), so
/// that an array indexed by them can stay in registers.
template <int N, int I = 0, class Body>
CLOVER_INLINE void unroll(const Body& body) {
  if constexpr (I < N) {
    body(Constant<I>{});
    unroll<N, I + 1>(body);
  }
}

/// Cache levels 1 and 2, with their numbers for __builtin_prefetch.
enum class CacheLevel { first = 3, second = 2 };
/// Prefetches the 64-byte cache line of `address`, which need not be valid.
template <CacheLevel level>
CLOVER_INLINE void prefetch_line(const void* address) {
  __builtin_prefetch(address, 0, static_cast<int>(level));
}

CLOVER_INLINE F32x8 splat(float x) {
  return F32x8{x, x, x, x, x, x, x, x};
}

CLOVER_INLINE F32x8 load8(const float* from) {
  F32x8 x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
CLOVER_INLINE void store8(float* to, F32x8 x) {
  std::memcpy(to, &x, sizeof x);
}

// 64 bytes, a cache line: 16 lanes of 32 bits, for the families with such registers.
using F32x16 = float __attribute__((vector_size(64)));
using I32x16 = int32_t __attribute__((vector_size(64)));
using U32x16 = uint32_t __attribute__((vector_size(64)));
using U16x32 = uint16_t __attribute__((vector_size(64)));
/// Loads or stores 64 bytes at any address.  Not by memcpy, because compilers then keep the line in memory,
/// not in a register.
template <class To, class From>
CLOVER_INLINE To load_line(const From* from) {
  using Unaligned __attribute__((aligned(1), may_alias)) = To;
  return *reinterpret_cast<const Unaligned*>(from);
}
template <class Line, class To>
CLOVER_INLINE void store_line(To* to, Line x) {
  using Unaligned __attribute__((aligned(1), may_alias)) = Line;
  *reinterpret_cast<Unaligned*>(to) = x;
}
CLOVER_INLINE F32x8 lower_half(F32x16 x) {
  return __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7);
}
CLOVER_INLINE F32x8 upper_half(F32x16 x) {
  return __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
}

CLOVER_INLINE F32x16 join(F32x8 low, F32x8 high) {
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/// The longest vector of floats that the instruction family has.
#if defined(__AVX512F__) || defined(CLOVER_EMULATE_AVX512_BF16)
using F32xN = F32x16;
using U32xN = U32x16;
#else
using F32xN = F32x8;
using U32xN = U32x8;
#endif
template <class Lanes>
constexpr int64_t lane_count = sizeof(Lanes) / sizeof(float);

/// Eight 16-bit numbers, zero-extended to 32 bits.
CLOVER_INLINE U32x8 load_halves(const uint16_t* from) {
#if defined(__AVX2__)  // one instruction, which compilers do not generate for the code below
  return (U32x8)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  U16x8 h;
  std::memcpy(&h, from, sizeof h);
  return __builtin_convertvector(h, U32x8);
#endif
}
CLOVER_INLINE void store_halves(uint16_t* to, U32x8 x) {
  const U16x8 h = __builtin_convertvector(x, U16x8);
  std::memcpy(to, &h, sizeof h);
}

CLOVER_INLINE F32x8 load8(const Bf16* from) {
  return (F32x8)(load_halves(&from->bits) << 16);
}
/// Rounds to nearest even; every NaN becomes 0x7fc0.
CLOVER_INLINE void store8(Bf16* to, F32x8 x) {
  const U32x8 bits = (U32x8)x;
  const U32x8 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  store_halves(&to->bits, x == x ? rounded : (U32x8)(I32x8{} + 0x7fc0));
}

#if defined(__F16C__)
CLOVER_INLINE F32x8 load8(const Fp16* from) {
  return (F32x8)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
CLOVER_INLINE void store8(Fp16* to, F32x8 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
CLOVER_INLINE F32x8 load8(const Fp16* from) {
  const U32x8 h = load_halves(&from->bits);
  const U32x8 magnitude = h & 0x7fffu;
  // A subnormal is m * 2^-24, where m is `magnitude`.  The bits 0x3f000000 | m are the float 2^-1 + m *
  // 2^-24, from which subtracting 2^-1 is exact.
  const F32x8 subnormal = (F32x8)(magnitude | 0x3f000000u) - 0.5f;
  const U32x8 normal = (magnitude << 13) + (112u << 23);
  const U32x8 special = normal + (112u << 23);  // infinities and NaN
  const U32x8 value = magnitude < 0x400u ? (U32x8)subnormal : (magnitude < 0x7c00u ? normal : special);
  return (F32x8)(value | ((h & 0x8000u) << 16));
}
CLOVER_INLINE void store8(Fp16* to, F32x8 x) {
  const U32x8 bits = (U32x8)x;
  const U32x8 magnitude = bits & 0x7fffffffu;
  const U32x8 subnormal = (U32x8)((F32x8)magnitude + 0.5f) - 0x3f000000u;
  const U32x8 normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const U32x8 special = magnitude > 0x7f800000u ? (U32x8)(I32x8{} + 0x7e00) : (U32x8)(I32x8{} + 0x7c00);
  const U32x8 value = magnitude < 0x38800000u ? subnormal : (magnitude < 0x47800000u ? normal : special);
  store_halves(&to->bits, value | ((bits >> 16) & 0x8000u));
}
#endif

// AVX-512 converts 16 numbers with one instruction, where compilers would convert two halves.  The masked
// intrinsics (_maskz_, all lanes on) avoid compiler warnings that the unmasked ones cause.
#if defined(__AVX512F__)
CLOVER_INLINE F32x16 bf16_to_float(__m256i halves) {
  return (F32x16)((U32x16)_mm512_maskz_cvtepu16_epi32(0xffff, halves) << 16);
}
CLOVER_INLINE F32x16 load16(const Bf16* from) {
  return bf16_to_float(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
CLOVER_INLINE F32x16 load8_pair(const Bf16* low, const Bf16* high) {
  const __m256i lower = _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low)));
  return bf16_to_float(
      _mm256_inserti128_si256(lower, _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1));
}
#endif
/// Eight elements from `low` and eight from `high`.
template <class T>
CLOVER_INLINE F32x16 load8_pair(const T* low, const T* high) {
  return join(load8(low), load8(high));
}
#if defined(__AVX512F__)
CLOVER_INLINE F32x16 load16(const Fp16* from) {
  return (F32x16)_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
#endif
template <class T>
CLOVER_INLINE F32x16 load16(const T* from) {
  return load8_pair(from, from + 8);
}
CLOVER_INLINE F32x16 load16(const float* from) {
  return load_line<F32x16>(from);
}

/// Loads as many elements as Lanes has lanes, 8 or 16.
template <class Lanes, class T>
CLOVER_INLINE Lanes load_lanes(const T* from) {
  if constexpr (lane_count<Lanes> == 8) {
    return load8(from);
  } else {
    return load16(from);
  }
}
template <class Lanes>
CLOVER_INLINE Lanes broadcast(float x) {
  if constexpr (lane_count<Lanes> == 8) {
    return splat(x);
  } else {
    return F32x16{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
  }
}
template <class T>
CLOVER_INLINE void store16(T* to, F32x16 x) {
  store8(to, lower_half(x));
  store8(to + 8, upper_half(x));
}
#if defined(__AVX512F__)  // three times as fast as two halves
CLOVER_INLINE void store16(Bf16* to, F32x16 x) {
  const U32x16 bits = (U32x16)x;
  const U32x16 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const U32x16 halves = x == x ? rounded : (U32x16)(I32x16{} + 0x7fc0);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)halves));
}
#endif
CLOVER_INLINE void store16(float* to, F32x16 x) {
  store_line(to, x);
}
template <class Lanes, class T>
CLOVER_INLINE void store_lanes(T* to, Lanes x) {
  if constexpr (lane_count<Lanes> == 8) {
    store8(to, x);
  } else {
    store16(to, x);
  }
}
/// F32x8: eight elements from `low`.  F32x16: these, then eight from `high`.
template <class Lanes, class T>
CLOVER_INLINE Lanes load8_or_pair(const T* low, [[maybe_unused]] const T* high) {
  if constexpr (lane_count<Lanes> == 8) {
    return load8(low);
  } else {
    return load8_pair(low, high);
  }
}
/// F32x8: eight elements.  F32x16: the same eight in both halves.
template <class Lanes>
CLOVER_INLINE Lanes broadcast8(const float* from) {
#if defined(__AVX512F__)
  if constexpr (lane_count<Lanes> == 16)
    return (F32x16)_mm512_maskz_broadcast_f32x8(0xffff, _mm256_loadu_ps(from));
#endif
  return load8_or_pair<Lanes>(from, from);
}

/// a * b + c, rounded once.
CLOVER_INLINE F32x8 madd(F32x8 a, F32x8 b, F32x8 c) {
#if defined(__FMA__)
  return (F32x8)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  for (int lane = 0; lane < 8; ++lane) c[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
  return c;
#endif
}

CLOVER_INLINE F32x16 madd(F32x16 a, F32x16 b, F32x16 c) {
#if defined(__AVX512F__)
  return (F32x16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
  return join(madd(lower_half(a), lower_half(b), lower_half(c)),
              madd(upper_half(a), upper_half(b), upper_half(c)));
#endif
}

/// Loads n < 8 elements; the other lanes are `fill`.
template <class T>
CLOVER_INLINE F32x8 load_part(const T* from, int64_t n, float fill = 0) {
  T padded[8] = {};
  std::memcpy(padded, from, n * sizeof(T));
  F32x8 x = load8(padded);
  for (int64_t lane = n; lane < 8; ++lane) x[lane] = fill;
  return x;
}
template <class T>
CLOVER_INLINE void store_part(T* to, int64_t n, F32x8 x) {
  T padded[8];
  store8(padded, x);
  std::memcpy(to, padded, n * sizeof(T));
}

/// The sum of the lanes, added in the order ((0+1)+(2+3)) + ((4+5)+(6+7)).
CLOVER_INLINE float sum8(F32x8 x) {
  return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

/// The maximum of each lane; `best` where x is NaN.
template <class Lanes>
CLOVER_INLINE Lanes larger(Lanes x, Lanes best) {
  return x > best ? x : best;
}

CLOVER_INLINE float max8(F32x8 x) {
  x = larger(__builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3), x);
  x = larger(__builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5), x);
  return larger(__builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6), x)[0];
}

/// Whether any lane of a comparison's result, -1 for true and 0 for false, is true.
CLOVER_INLINE bool any(I32x8 x) {
#if defined(__AVX2__)
  return _mm256_movemask_ps((__m256)x) != 0;
#else
  uint64_t words[4];
  std::memcpy(words, &x, sizeof words);
  return ((words[0] | words[1]) | (words[2] | words[3])) != 0;
#endif
}
CLOVER_INLINE bool any(I32x16 x) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)x, (__m512i)x) != 0;
#else
  return any((I32x8)lower_half((F32x16)x) | (I32x8)upper_half((F32x16)x));
#endif
}

CLOVER_INLINE float max_lane(F32x8 x) {
  return max8(x);
}
CLOVER_INLINE float max_lane(F32x16 x) {
  return max8(larger(lower_half(x), upper_half(x)));
}

/// x = e^x in each lane, bit for bit exp_f32 (kernels/rows/activation.h), for N registers of F32x8 or F32x16.
/// Their operations are interleaved to hide latencies.
template <int N, class F>
CLOVER_INLINE void exp_lanes(F (&x)[N]) {
  using I = decltype(F{} < F{});
  // x = n * ln 2 + r with |r| <= ln 2 / 2; e^x = 2^n * p, where the polynomial p is e^r.
  F r[N], p[N];
  I n[N];
  const auto for_each_register = [](const auto& step) CLOVER_INLINED { unroll<N>(step); };
  for_each_register([&](auto k) CLOVER_INLINED {
    const F t = x[k] < -87.3f ? F{} - 87.3f : x[k];
    r[k] = t > 88.7f ? F{} + 88.7f : t;
  });
  // n = x / ln 2, rounded: adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits.
  for_each_register([&](auto k) CLOVER_INLINED { p[k] = r[k] * 1.44269504f; });
  for_each_register([&](auto k) CLOVER_INLINED { p[k] += 12582912.0f; });
  for_each_register([&](auto k) CLOVER_INLINED {
    n[k] = (I)p[k] - 0x4b400000;
    p[k] -= 12582912.0f;
  });
  // r = x - n * ln 2, with ln 2 in two parts: the first has so few bits that its product with n is exact.
  for_each_register([&](auto k) CLOVER_INLINED { r[k] -= p[k] * 0.693359375f; });
  for_each_register([&](auto k) CLOVER_INLINED { r[k] += p[k] * 2.12194440e-4f; });
  for_each_register([&](auto k) CLOVER_INLINED { p[k] = r[k] * 1.9875691500e-4f + 1.3981999507e-3f; });
  for_each_register([&](auto k) CLOVER_INLINED { p[k] = p[k] * r[k] + 8.3334519073e-3f; });
  for_each_register([&](auto k) CLOVER_INLINED { p[k] = p[k] * r[k] + 4.1665795894e-2f; });
  for_each_register([&](auto k) CLOVER_INLINED { p[k] = p[k] * r[k] + 1.6666665459e-1f; });
  for_each_register([&](auto k) CLOVER_INLINED { p[k] = p[k] * r[k] + 5.0000001201e-1f; });
  for_each_register([&](auto k) CLOVER_INLINED { p[k] = p[k] * (r[k] * r[k]) + r[k] + 1.0f; });
  for_each_register([&](auto k) CLOVER_INLINED {
    // 2^n as a product of two powers, because 2^128 alone would overflow.
    const I half_n = n[k] >> 1;
    const F power = p[k] * (F)((half_n + 127) << 23) * (F)((n[k] - half_n + 127) << 23);
    const F zero_below = x[k] < -87.3f ? F{} : power;
    x[k] = x[k] > 88.7f ? F{} + __builtin_inff() : zero_below;
  });
}
template <class F>
CLOVER_INLINE F exp_lanes(F x) {
  F one[1] = {x};
  exp_lanes(one);
  return one[0];
}

template <class Lanes>
CLOVER_INLINE Lanes silu_lanes(Lanes x) {
  return x / (1.0f + exp_lanes(-x));
}

}  // namespace
}  // namespace clover::kernels::cpu
