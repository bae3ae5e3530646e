#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/gpu/numbers.h"

// Four neighbours of a row, which a thread of a row-wise kernel reads and writes at once.  Rows that do not
// lie so that one instruction can do it are cut into the same fours: their sums have the same order.
namespace clover::kernels::cuda {

template <class T>
struct alignas(4 * sizeof(T)) Quad {
  T x[4];
};

/// row[at], ..., row[at + 3]; zeros from row[width] on.
template <bool Aligned, class T, class Index>
CLOVER_BOTH Quad<float> load_quad(const T* row, Index at, Index width) {
  Quad<T> stored = {};
  if constexpr (Aligned) {
    if (at < width) stored = *reinterpret_cast<const Quad<T>*>(row + at);
  } else {
    for (int i = 0; i < 4; ++i)
      if (at + i < width) stored.x[i] = row[at + i];
  }
  Quad<float> quad;
  for (int i = 0; i < 4; ++i) quad.x[i] = to_float(stored.x[i]);
  return quad;
}

template <bool Aligned, class T, class Index>
CLOVER_BOTH void store_quad(const Quad<float>& quad, T* row, Index at, Index width) {
  Quad<T> rounded;
  for (int i = 0; i < 4; ++i) from_float(quad.x[i], rounded.x[i]);
  if constexpr (Aligned) {
    if (at < width) *reinterpret_cast<Quad<T>*>(row + at) = rounded;
  } else {
    for (int i = 0; i < 4; ++i)
      if (at + i < width) row[at + i] = rounded.x[i];
  }
}

/// body(std::true_type{}) if rows of `width` from these addresses on are made of aligned quads, or
/// body(std::false_type{}).
template <class Body, class... T>
void with_alignment(const Body& body, int64_t width, const T*... rows) {
  if (width % 4 == 0 && (... && (reinterpret_cast<uintptr_t>(rows) % sizeof(Quad<T>) == 0))) {
    body(std::true_type{});
  } else {
    body(std::false_type{});
  }
}

}  // namespace clover::kernels::cuda
