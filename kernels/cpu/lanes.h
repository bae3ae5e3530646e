#pragma once

#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

// Eight fp32 lanes and the conversions at their edges.  Only IEEE operations whose result is defined to the
// bit, so that every instruction family computes the same; fused multiply-adds are written out as madd().
namespace clover::kernels::cpu {
namespace {

using F8 = float __attribute__((vector_size(32)));
using I8 = int32_t __attribute__((vector_size(32)));
using U8 = uint32_t __attribute__((vector_size(32)));
using H8 = uint16_t __attribute__((vector_size(16)));

struct Bf16 {
  uint16_t bits;
};
struct Fp16 {
  uint16_t bits;
};

#define CLOVER_INLINE inline __attribute__((always_inline))
#define CLOVER_INLINED __attribute__((always_inline))  // of a lambda

/// Calls body(0) .. body(N - 1), each with a constant, so that an array indexed by it can live in registers.
template <int I>
struct Constant {
  constexpr operator int() const { return I; }
};
template <int N, int I = 0, class Body>
CLOVER_INLINE void each(const Body& body) {
  if constexpr (I < N) {
    body(Constant<I>{});
    each<N, I + 1>(body);
  }
}

/// As __builtin_prefetch numbers them.
enum class CacheLevel { first = 3, second = 2 };
/// Prefetches the 64 bytes around an address, which may lie beyond all data.
template <CacheLevel level>
CLOVER_INLINE void ask_for(const void* address) {
  __builtin_prefetch(address, 0, static_cast<int>(level));
}

CLOVER_INLINE F8 splat(float x) {
  return F8{x, x, x, x, x, x, x, x};
}

CLOVER_INLINE F8 load8(const float* from) {
  F8 x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
CLOVER_INLINE void store8(float* to, F8 x) {
  std::memcpy(to, &x, sizeof x);
}

/// Sixteen lanes, for the families that have them.  Not by memcpy: compilers keep 64 bytes whose address was
/// taken in memory.
using F16 = float __attribute__((vector_size(64)));
using I16 = int32_t __attribute__((vector_size(64)));
using U16 = uint32_t __attribute__((vector_size(64)));
using H32 = uint16_t __attribute__((vector_size(64)));
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
CLOVER_INLINE F8 lower_half(F16 x) {
  return __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7);
}
CLOVER_INLINE F8 upper_half(F16 x) {
  return __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
}

CLOVER_INLINE F16 join(F8 low, F8 high) {
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/// The widest lanes that the family computes with.
#if defined(__AVX512F__) || defined(CLOVER_EMULATE_AVX512_BF16)
using Wide = F16;
#else
using Wide = F8;
#endif
template <class Lanes>
constexpr int64_t lane_count = sizeof(Lanes) / sizeof(float);

CLOVER_INLINE U8 load_halves(const uint16_t* from) {
#if defined(__AVX2__)  // one instruction, which compilers do not find
  return (U8)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
  H8 h;
  std::memcpy(&h, from, sizeof h);
  return __builtin_convertvector(h, U8);
#endif
}
CLOVER_INLINE void store_halves(uint16_t* to, U8 x) {
  const H8 h = __builtin_convertvector(x, H8);
  std::memcpy(to, &h, sizeof h);
}

CLOVER_INLINE F8 load8(const Bf16* from) {
  return (F8)(load_halves(&from->bits) << 16);
}
CLOVER_INLINE void store8(Bf16* to, F8 x) {
  const U8 bits = (U8)x;
  const U8 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  store_halves(&to->bits, x == x ? rounded : (U8)(I8{} + 0x7fc0));
}

#if defined(__F16C__)
CLOVER_INLINE F8 load8(const Fp16* from) {
  return (F8)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
CLOVER_INLINE void store8(Fp16* to, F8 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
CLOVER_INLINE F8 load8(const Fp16* from) {
  const U8 h = load_halves(&from->bits);
  const U8 magnitude = h & 0x7fffu;
  // Subnormals: 2^-1 + m * 2^-24 is exact in fp32, and so is the difference.
  const F8 subnormal = (F8)(magnitude | 0x3f000000u) - 0.5f;
  const U8 normal = (magnitude << 13) + (112u << 23);
  const U8 special = normal + (112u << 23);  // infinities and NaN
  const U8 value = magnitude < 0x400u ? (U8)subnormal : (magnitude < 0x7c00u ? normal : special);
  return (F8)(value | ((h & 0x8000u) << 16));
}
CLOVER_INLINE void store8(Fp16* to, F8 x) {
  const U8 bits = (U8)x;
  const U8 magnitude = bits & 0x7fffffffu;
  const U8 subnormal = (U8)((F8)magnitude + 0.5f) - 0x3f000000u;
  const U8 normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const U8 special = magnitude > 0x7f800000u ? (U8)(I8{} + 0x7e00) : (U8)(I8{} + 0x7c00);
  const U8 value = magnitude < 0x38800000u ? subnormal : (magnitude < 0x47800000u ? normal : special);
  store_halves(&to->bits, value | ((bits >> 16) & 0x8000u));
}
#endif

#if defined(__AVX512F__)  // Compilers widen each half by itself.  Their unmasked forms warn of lanes that
                          // nobody reads.
CLOVER_INLINE F16 widen(__m256i halves) {
  return (F16)((U16)_mm512_maskz_cvtepu16_epi32(0xffff, halves) << 16);
}
CLOVER_INLINE F16 load16(const Bf16* from) {
  return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
CLOVER_INLINE F16 load_two(const Bf16* low, const Bf16* high) {
  const __m256i lower = _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low)));
  return widen(_mm256_inserti128_si256(lower, _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1));
}
#endif
template <class T>
CLOVER_INLINE F16 load_two(const T* low, const T* high) {
  return join(load8(low), load8(high));
}
template <class T>
CLOVER_INLINE F16 load16(const T* from) {
  return load_two(from, from + 8);
}
CLOVER_INLINE F16 load16(const float* from) {
  return load_line<F16>(from);
}

/// As many elements as there are lanes.
template <class Lanes, class T>
CLOVER_INLINE Lanes load_lanes(const T* from) {
  if constexpr (lane_count<Lanes> == 8) {
    return load8(from);
  } else {
    return load16(from);
  }
}
template <class Lanes>
CLOVER_INLINE Lanes repeat(float x) {
  if constexpr (lane_count<Lanes> == 8) {
    return splat(x);
  } else {
    return F16{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
  }
}
template <class T>
CLOVER_INLINE void store16(T* to, F16 x) {
  store8(to, lower_half(x));
  store8(to + 8, upper_half(x));
}
#if defined(__AVX512F__)  // each half by itself takes three times as long
CLOVER_INLINE void store16(Bf16* to, F16 x) {
  const U16 bits = (U16)x;
  const U16 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const U16 halves = x == x ? rounded : (U16)(I16{} + 0x7fc0);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)halves));
}
#endif
CLOVER_INLINE void store16(float* to, F16 x) {
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
/// Eight elements, and in lanes that have room another eight.
template <class Lanes, class T>
CLOVER_INLINE Lanes load_eights(const T* low, [[maybe_unused]] const T* high) {
  if constexpr (lane_count<Lanes> == 8) {
    return load8(low);
  } else {
    return load_two(low, high);
  }
}
/// The same eight in all of them.
template <class Lanes>
CLOVER_INLINE Lanes repeat_eight(const float* from) {
#if defined(__AVX512F__)
  if constexpr (lane_count<Lanes> == 16)
    return (F16)_mm512_maskz_broadcast_f32x8(0xffff, _mm256_loadu_ps(from));
#endif
  return load_eights<Lanes>(from, from);
}

/// a * b + c, rounded once.
CLOVER_INLINE F8 madd(F8 a, F8 b, F8 c) {
#if defined(__FMA__)
  return (F8)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  for (int lane = 0; lane < 8; ++lane) c[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
  return c;
#endif
}

CLOVER_INLINE F16 madd(F16 a, F16 b, F16 c) {
#if defined(__AVX512F__)
  return (F16)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
  return join(madd(lower_half(a), lower_half(b), lower_half(c)),
              madd(upper_half(a), upper_half(b), upper_half(c)));
#endif
}

/// The first n < 8 elements, the rest `fill`.
template <class T>
CLOVER_INLINE F8 load_part(const T* from, int64_t n, float fill = 0) {
  T padded[8] = {};
  std::memcpy(padded, from, n * sizeof(T));
  F8 x = load8(padded);
  for (int64_t lane = n; lane < 8; ++lane) x[lane] = fill;
  return x;
}
template <class T>
CLOVER_INLINE void store_part(T* to, int64_t n, F8 x) {
  T padded[8];
  store8(padded, x);
  std::memcpy(to, padded, n * sizeof(T));
}

/// The lanes added as ((0+1)+(2+3)) + ((4+5)+(6+7)).
CLOVER_INLINE float sum8(F8 x) {
  return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

template <class Lanes>
CLOVER_INLINE Lanes larger(Lanes x, Lanes best) {
  return x > best ? x : best;
}  // keeps `best` where x is NaN

CLOVER_INLINE float max8(F8 x) {
  x = larger(__builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3), x);
  x = larger(__builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5), x);
  return larger(__builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6), x)[0];
}

/// Whether a comparison holds in any lane.
CLOVER_INLINE bool any(I8 x) {
#if defined(__AVX2__)
  return _mm256_movemask_ps((__m256)x) != 0;
#else
  uint64_t words[4];
  std::memcpy(words, &x, sizeof words);
  return ((words[0] | words[1]) | (words[2] | words[3])) != 0;
#endif
}
CLOVER_INLINE bool any(I16 x) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)x, (__m512i)x) != 0;
#else
  return any((I8)lower_half((F16)x) | (I8)upper_half((F16)x));
#endif
}

CLOVER_INLINE float max_lane(F8 x) {
  return max8(x);
}
CLOVER_INLINE float max_lane(F16 x) {
  return max8(larger(lower_half(x), upper_half(x)));
}

/// exp_f32 (kernels/rows/activation.h) of F8 or F16, N registers interleaved, so that one fills the latencies
/// of another.
template <int N, class F>
CLOVER_INLINE void exp_lanes(F (&x)[N]) {
  using I = decltype(F{} < F{});
  F r[N], p[N];
  I n[N];
  const auto all = [](const auto& step) CLOVER_INLINED { each<N>(step); };
  all([&](auto k) CLOVER_INLINED {
    const F t = x[k] < -87.3f ? F{} - 87.3f : x[k];
    r[k] = t > 88.7f ? F{} + 88.7f : t;
  });
  // Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits.
  all([&](auto k) CLOVER_INLINED { p[k] = r[k] * 1.44269504f; });
  all([&](auto k) CLOVER_INLINED { p[k] += 12582912.0f; });
  all([&](auto k) CLOVER_INLINED {
    n[k] = (I)p[k] - 0x4b400000;
    p[k] -= 12582912.0f;
  });
  // ln 2 in two parts, the first with few enough bits for an exact product.
  all([&](auto k) CLOVER_INLINED { r[k] -= p[k] * 0.693359375f; });
  all([&](auto k) CLOVER_INLINED { r[k] += p[k] * 2.12194440e-4f; });
  all([&](auto k) CLOVER_INLINED { p[k] = r[k] * 1.9875691500e-4f + 1.3981999507e-3f; });
  all([&](auto k) CLOVER_INLINED { p[k] = p[k] * r[k] + 8.3334519073e-3f; });
  all([&](auto k) CLOVER_INLINED { p[k] = p[k] * r[k] + 4.1665795894e-2f; });
  all([&](auto k) CLOVER_INLINED { p[k] = p[k] * r[k] + 1.6666665459e-1f; });
  all([&](auto k) CLOVER_INLINED { p[k] = p[k] * r[k] + 5.0000001201e-1f; });
  all([&](auto k) CLOVER_INLINED { p[k] = p[k] * (r[k] * r[k]) + r[k] + 1.0f; });
  all([&](auto k) CLOVER_INLINED {
    const I half = n[k] >> 1;
    const F scaled = p[k] * (F)((half + 127) << 23) * (F)((n[k] - half + 127) << 23);
    const F floored = x[k] < -87.3f ? F{} : scaled;
    x[k] = x[k] > 88.7f ? F{} + __builtin_inff() : floored;
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

/// Every other lane of `low` and then `high`: the even ones, or the odd ones.
CLOVER_INLINE F8 evens(F8 low, F8 high) {
  return __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14);
}
CLOVER_INLINE F8 odds(F8 low, F8 high) {
  return __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15);
}
CLOVER_INLINE F16 evens(F16 low, F16 high) {
  return __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
CLOVER_INLINE F16 odds(F16 low, F16 high) {
  return __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

/// silu(gate) * up, N times, each from two registers of interleaved gates and ups; one step for all N at a
/// time.
template <int N, class F>
CLOVER_INLINE void silu_mul_lanes(const F* pairs, F (&to)[N]) {
  each<N>([&](auto k) CLOVER_INLINED { to[k] = -evens(pairs[2 * k], pairs[2 * k + 1]); });
  exp_lanes(to);
  each<N>([&](auto k) CLOVER_INLINED {
    const F gate = evens(pairs[2 * k], pairs[2 * k + 1]), up = odds(pairs[2 * k], pairs[2 * k + 1]);
    to[k] = gate / (1.0f + to[k]) * up;
  });
}

}  // namespace
}  // namespace clover::kernels::cpu
