#pragma once

#include "kernels/cpu/lanes.h"
#include "kernels/rows/cache_row.h"

// Norms, activations and rotations: each row by itself.
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

/// to[i] = body(i, count) in steps of eight; a whole vector computes the tail too.
template <class T, class Body>
CLOVER_INLINE void fill_row(T* to, int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) store8(to + i, body([&](const float* from) { return load8(from + i); }));
  if (i < n) store_part(to + i, n - i, body([&](const float* from) { return load_part(from + i, n - i); }));
}

template <class T>
void rms_norm_rows(const float* x, const float* weight, float eps, int64_t width, T* out, int64_t begin,
                   int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float* row = x + r * width;
    const float mean = dot(row, row, width) / static_cast<float>(width);
    const float inverse = 1.0f / __builtin_sqrtf(mean + eps);
    fill_row(out + r * width, width, [&](auto load) { return load(row) * inverse * load(weight); });
  }
}

void rms_norm(const float* x, const float* weight, float eps, int64_t width, void* out, Element element,
              int64_t begin, int64_t end) {
  switch (element) {
    case Element::fp32:
      return rms_norm_rows(x, weight, eps, width, static_cast<float*>(out), begin, end);
    case Element::bf16:
      return rms_norm_rows(x, weight, eps, width, static_cast<Bf16*>(out), begin, end);
    case Element::fp16:
      return rms_norm_rows(x, weight, eps, width, static_cast<Fp16*>(out), begin, end);
  }
}

void add_silu(float* z, const float* a, int64_t begin, int64_t end) {
  fill_row(z + begin, end - begin, [&](auto load) { return load(z + begin) + silu_lanes(load(a + begin)); });
}

void add_gated(float* s, const float* q, const float* k, const float* v, int64_t width, int64_t groups,
               float eps, bool silu, int64_t begin, int64_t end) {
  const int64_t slice = width / groups;
  for (int64_t i = begin * groups; i < end * groups; ++i) {
    const int64_t at = i * slice;
    const float q_norm = __builtin_sqrtf(dot(q + at, q + at, slice));
    const float k_norm = __builtin_sqrtf(dot(k + at, k + at, slice));
    const float gate =
        dot(q + at, k + at, slice) / ((q_norm > eps ? q_norm : eps) * (k_norm > eps ? k_norm : eps));
    if (silu) {
      fill_row(s + at, slice, [&](auto load) { return load(s + at) + silu_lanes(load(v + at) * gate); });
    } else {
      fill_row(s + at, slice, [&](auto load) { return load(s + at) + load(v + at) * gate; });
    }
  }
}

/// One head: elements i and i + d/2 of it lie side by side in x.  No operation here depends on how it is
/// vectorised.
CLOVER_INLINE void rotate(const float* __restrict x, const float* __restrict cos, const float* __restrict sin,
                          int64_t half, float* __restrict to) {
  for (int64_t i = 0; i < half; ++i) {
    const float low = x[2 * i], high = x[2 * i + 1];
    to[i] = low * cos[i] - high * sin[i];
    to[i + half] = high * cos[i] + low * sin[i];
  }
}

template <class T>
CLOVER_INLINE void store_row(T* to, const float* from, int64_t n) {
  fill_row(to, n, [&](auto load) { return load(from); });
}

template <class T>
void rope_rows(const float* row, const RopeCall& call, T* k, T* v, int64_t begin, int64_t end) {
  const int64_t d = call.head_size, half = d / 2;
  const int64_t query = call.query_heads * d, kv = call.kv_heads * d;
  for (int64_t r = begin; r < end; ++r, row += query + 2 * kv) {
    const float *cos = call.cos + r * half, *sin = call.sin + r * half;
    for (int64_t at = 0; at < query; at += d) rotate(row + at, cos, sin, half, call.q + r * query + at);
    const PagePlace place = place_of(call.slots[r], call.page_size);
    for (int64_t head = 0; head < call.kv_heads; ++head) {
      const int64_t to = cache_row(call, place, head) * d;
      float turned[1024];
      rotate(row + query + head * d, cos, sin, half, turned);
      store_row(k + to, turned, d);
      store_row(v + to, row + query + kv + head * d, d);
    }
  }
}

void rope(const float* sums, const RopeCall& call, int64_t begin, int64_t end) {
  switch (call.cache) {
    case Element::fp32:
      return rope_rows(sums, call, static_cast<float*>(call.k), static_cast<float*>(call.v), begin, end);
    case Element::bf16:
      return rope_rows(sums, call, static_cast<Bf16*>(call.k), static_cast<Bf16*>(call.v), begin, end);
    case Element::fp16:
      return rope_rows(sums, call, static_cast<Fp16*>(call.k), static_cast<Fp16*>(call.v), begin, end);
  }
}

}  // namespace
}  // namespace clover::kernels::cpu
