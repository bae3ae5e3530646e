#pragma once

#include "kernels/cpu/lanes.h"

// Dot products and element-wise functions of rows, for *_simd.cc files.
namespace clover::kernels::cpu {
namespace {

/// The sum of a[i] * b[i] for i < n: 16 partial sums, lane by lane, which are then added in a fixed tree.
CLOVER_INLINE float dot(const float* a, const float* b, int64_t n) {
  F32x8 low{}, high{};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    low += load8(a + i) * load8(b + i);
    high += load8(a + i + 8) * load8(b + i + 8);
  }
  if (i + 8 <= n) {
    low += load8(a + i) * load8(b + i);
    i += 8;
    if (i < n) high += load_part(a + i, n - i) * load_part(b + i, n - i);
  } else if (i < n) {
    low += load_part(a + i, n - i) * load_part(b + i, n - i);
  }
  return sum8(low + high);
}

/// Computes to[0], ..., to[n - 1], eight numbers at a time.  body(load) returns the F32x8 of such eight,
/// where load(row) reads the numbers of another row at the same indices; lanes past the end are 0 and not
/// stored.
template <class T, class Body>
CLOVER_INLINE void fill_row(T* to, int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) store8(to + i, body([&](const float* from) { return load8(from + i); }));
  if (i < n) store_part(to + i, n - i, body([&](const float* from) { return load_part(from + i, n - i); }));
}

}  // namespace
}  // namespace clover::kernels::cpu
