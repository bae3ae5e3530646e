#pragma once

#include "kernels/cpu/lanes.h"
#include "kernels/linear/cpu/linear_loops.h"

// Epilogues of products on a CPU: what is done with the sums of some rows. Sums are in vectors of 8 or 16
// floats (F32x8, F32x16, kernels/cpu/lanes.h); a panel is 16 outputs.
namespace clover::kernels::cpu {
namespace {

/// Calls body with call.product as a pointer to its element type.
template <class Body>
CLOVER_INLINE void with_product(const LinearWork& call, const Body& body) {
  switch (call.element) {
    case Element::fp32:
      return body(static_cast<float*>(call.product));
    case Element::bf16:
      return body(static_cast<Bf16*>(call.product));
    case Element::fp16:
      return body(static_cast<Fp16*>(call.product));
  }
}

/// Adds bias or y to the sums and writes eight outputs of one row to y.
CLOVER_INLINE void finish(const LinearWork& call, int64_t row, int64_t output, F32x8 sum) {
  const int64_t count = call.outputs - output < 8 ? call.outputs - output : 8;
  if (count <= 0) return;
  float* to = call.y + row * call.outputs + output;
  const float* start = call.accumulate ? to : call.bias != nullptr ? call.bias + output : nullptr;
  if (count == 8) {
    store8(to, start != nullptr ? load8(start) + sum : sum);
  } else {
    store_part(to, count, start != nullptr ? load_part(start, count) + sum : sum);
  }
}

/// The same for a panel, sixteen outputs.
CLOVER_INLINE void finish_panel(const LinearWork& call, int64_t row, int64_t output, F32x16 sum) {
  if (output + 16 > call.outputs) {
    finish(call, row, output, lower_half(sum));
    finish(call, row, output + 8, upper_half(sum));
    return;
  }
  float* to = call.y + row * call.outputs + output;
  const float* start = call.accumulate ? to : call.bias != nullptr ? call.bias + output : nullptr;
  store_line(to, start != nullptr ? load_line<F32x16>(start) + sum : sum);
}

/// SwiGLU of N successive rows. `sums` has two vectors for each row, with the interleaved gates and ups of
/// the outputs from `output` on; they become one vector of elements of the product. F: F32x8 or F32x16.
template <int N, class F>
CLOVER_INLINE void finish_gated_rows(const LinearWork& call, int64_t row, int64_t output, const F* sums) {
  const int64_t width = call.outputs / 2, i = output / 2;
  F gated[N];
  silu_mul_lanes(sums, gated);
  with_product(call, [&](auto* product) CLOVER_INLINED {
    auto* to = product + row * width + i;
    unroll<N>([&](auto n) CLOVER_INLINED {
      if (i + lane_count<F> <= width) return store_lanes(to + n * width, gated[n]);
      float tail[lane_count<F>];
      store_lanes(tail, gated[n]);
      for (int64_t at = i; at < width; at += 8)
        store_part(to + n * width + at - i, width - at < 8 ? width - at : 8, load8(tail + at - i));
    });
  });
}

/// The same for any number of rows, four at a time.
template <class F>
__attribute__((noinline)) void finish_gated(const LinearWork& call, int64_t first, int64_t rows,
                                            int64_t output, const F* sums) {
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) finish_gated_rows<4>(call, first + row, output, sums + 2 * row);
  for (; row < rows; ++row) finish_gated_rows<1>(call, first + row, output, sums + 2 * row);
}

/// LinearLoops::in_place of loops that repack all rows.
[[maybe_unused]] bool never_in_place(const LinearCall&) {
  return false;
}

}  // namespace
}  // namespace clover::kernels::cpu
