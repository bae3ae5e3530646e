#pragma once

#include "kernels/cpu/lanes.h"

// Sums and maps over one row, for the *_simd.cc files.
namespace clover::kernels::cpu {
namespace {

/// Sum of a[i] * b[i]: sixteen partial sums, then a fixed tree.
CLOVER_INLINE float dot(const float* a, const float* b, int64_t n) {
  F8 low{}, high{};
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

/// Fills to[0 .. n) eight numbers at a time: body(load) computes them, where load(p) reads the eight (or, in
/// the tail, fewer) of row p.
template <class T, class Body>
CLOVER_INLINE void fill_row(T* to, int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) store8(to + i, body([&](const float* from) { return load8(from + i); }));
  if (i < n) store_part(to + i, n - i, body([&](const float* from) { return load_part(from + i, n - i); }));
}

}  // namespace
}  // namespace clover::kernels::cpu
