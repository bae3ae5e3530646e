#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/gpu/numbers.h"

// Four neighbouring numbers of a row, which a thread of a row-wise kernel loads and stores with one
// instruction (as with float4).  Rows that are not aligned for it are cut into the same fours, so that their
// sums have the same order.
namespace clover::kernels::cuda {

template <class T>
struct alignas(4 * sizeof(T)) Vec4 {
  T x[4];
};

/// row[at], ..., row[at + 3]; zeros from row[width] on.
template <bool Aligned, class T, class Index>
CLOVER_HOST_DEVICE Vec4<float> load_vec4(const T* row, Index at, Index width) {
  Vec4<T> stored = {};
  if constexpr (Aligned) {
    if (at < width) stored = *reinterpret_cast<const Vec4<T>*>(row + at);
  } else {
    for (int i = 0; i < 4; ++i)
      if (at + i < width) stored.x[i] = row[at + i];
  }
  Vec4<float> four;
  for (int i = 0; i < 4; ++i) four.x[i] = to_float(stored.x[i]);
  return four;
}

template <bool Aligned, class T, class Index>
CLOVER_HOST_DEVICE void store_vec4(const Vec4<float>& four, T* row, Index at, Index width) {
  Vec4<T> rounded;
  for (int i = 0; i < 4; ++i) from_float(four.x[i], rounded.x[i]);
  if constexpr (Aligned) {
    if (at < width) *reinterpret_cast<Vec4<T>*>(row + at) = rounded;
  } else {
    for (int i = 0; i < 4; ++i)
      if (at + i < width) row[at + i] = rounded.x[i];
  }
}

/// body(std::true_type{}) if rows of `width` from these addresses on are made of aligned Vec4s, or
/// body(std::false_type{}).
template <class Body, class... T>
void with_alignment(const Body& body, int64_t width, const T*... rows) {
  if (width % 4 == 0 && (... && (reinterpret_cast<uintptr_t>(rows) % sizeof(Vec4<T>) == 0))) {
    body(std::true_type{});
  } else {
    body(std::false_type{});
  }
}

}  // namespace clover::kernels::cuda
