#include "kernels/attention/attention_call.h"
#include "kernels/cpu/family.h"
#include "kernels/linear/cpu/linear_loops.h"
#include "kernels/rows/cache_row.h"
#include "kernels/rows/row_lanes.h"

namespace clover::kernels::cpu {
namespace {

/// Rotates one head of 2 * half elements: elements i and i + half of it are x[2 * i] and x[2 * i + 1].  The
/// compiler may vectorise this without a change of bits.
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
      float rotated[max_head_size];
      rotate(row + query + head * d, cos, sin, half, rotated);
      store_row(k + to, rotated, d);
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

template <>
const RopeLoops LoopsOf<RopeLoops, CLOVER_FAMILY>::loops{rope};

}  // namespace clover::kernels::cpu
