#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/gpu/numbers.h"

// Four consecutive numbers of a row, which a thread loads and stores with one instruction, as with CUDA's
// float4. Rows whose alignment forbids that are read number by number, but in the same groups of four, so
// that sums over them have the same order.
namespace clover::kernels::cuda {

template <class T>
struct alignas(4 * sizeof(T)) Vec4 {
  T x[4];
};

/// row[first], ..., row[first + 3] as fp32, with zeros from row[width] on.  Aligned: as with_alignment found
/// it.
template <bool Aligned, class T, class Index>
CLOVER_HOST_DEVICE Vec4<float> load_vec4(const T* row, Index first, Index width) {
  Vec4<T> stored = {};
  if constexpr (Aligned) {
    if (first < width) stored = *reinterpret_cast<const Vec4<T>*>(row + first);
  } else {
    for (int i = 0; i < 4; ++i)
      if (first + i < width) stored.x[i] = row[first + i];
  }
  Vec4<float> numbers;
  for (int i = 0; i < 4; ++i) numbers.x[i] = to_float(stored.x[i]);
  return numbers;
}

/// Rounds `numbers` to T and stores it at row[first], ..., row[first + 3]; nothing from row[width] on.
template <bool Aligned, class T, class Index>
CLOVER_HOST_DEVICE void store_vec4(const Vec4<float>& numbers, T* row, Index first, Index width) {
  Vec4<T> rounded;
  for (int i = 0; i < 4; ++i) from_float(numbers.x[i], rounded.x[i]);
  if constexpr (Aligned) {
    if (first < width) *reinterpret_cast<Vec4<T>*>(row + first) = rounded;
  } else {
    for (int i = 0; i < 4; ++i)
      if (first + i < width) row[first + i] = rounded.x[i];
  }
}

/// Calls body(std::true_type{}) if matrices with rows of `width` numbers, contiguous from the addresses
/// `rows` on, consist of aligned Vec4s, else body(std::false_type{}).
template <class Body, class... T>
void with_alignment(const Body& body, int64_t width, const T*... rows) {
  if (width % 4 == 0 && (... && (reinterpret_cast<uintptr_t>(rows) % sizeof(Vec4<T>) == 0))) {
    body(std::true_type{});
  } else {
    body(std::false_type{});
  }
}

}  // namespace clover::kernels::cuda
