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

/// The even (or odd) lanes of `low`, then those of `high`.
CLOVER_INLINE F32x8 evens(F32x8 low, F32x8 high) {
  return __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14);
}
CLOVER_INLINE F32x8 odds(F32x8 low, F32x8 high) {
  return __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15);
}
CLOVER_INLINE F32x16 evens(F32x16 low, F32x16 high) {
  return __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
CLOVER_INLINE F32x16 odds(F32x16 low, F32x16 high) {
  return __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

/// to[k] = silu(gate) * up for k < N, where registers pairs[2k] and pairs[2k + 1] hold gate, up, gate, up,
/// ... The N computations are interleaved, as in exp_lanes.
template <int N, class F>
CLOVER_INLINE void silu_mul_lanes(const F* pairs, F (&to)[N]) {
  unroll<N>([&](auto k) CLOVER_INLINED { to[k] = -evens(pairs[2 * k], pairs[2 * k + 1]); });
  exp_lanes(to);
  unroll<N>([&](auto k) CLOVER_INLINED {
    const F gate = evens(pairs[2 * k], pairs[2 * k + 1]), up = odds(pairs[2 * k], pairs[2 * k + 1]);
    to[k] = gate / (1.0f + to[k]) * up;
  });
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

/// More rows than any tile of finish_panels has.
constexpr int64_t max_finished_rows = 16;

/// Writes the sums of M rows by P panels to y, without bias; all outputs of the panels exist.
template <int P, int M>
CLOVER_INLINE void store_panels(const LinearWork& call, int64_t panel, int64_t row,
                                const F32x16 (&sum)[P][M]) {
  const int64_t outputs = call.outputs;
  float* to = call.y + row * outputs + panel * 16;
  const bool accumulate = call.accumulate;
  unroll<M>([&](auto m) CLOVER_INLINED {
    unroll<P>([&](auto p) CLOVER_INLINED {
      float* line = to + p * 16;
      store_line(line, accumulate ? load_line<F32x16>(line) + sum[p][m] : sum[p][m]);
    });
    to += outputs;
  });
}

/// Applies any epilogue to the sums of `rows` rows by `panels` panels.  `sums` has first two vectors for each
/// row, of a first pair of panels, then those of the next pair, and last one for each row, of a panel without
/// partner. Not a template: compiled once a family, it takes a quarter of the time that these products take
/// to compile.
[[maybe_unused]] __attribute__((noinline)) void finish_stored_panels(const LinearWork& call, int64_t panel,
                                                                     int64_t panels, int64_t row,
                                                                     int64_t rows, const F32x16* sums) {
  for (; panels > 0; panels -= 2, panel += 2, sums += 2 * rows) {
    const int64_t width = panels == 1 ? 1 : 2;  // in panels
    if (call.epilogue != Epilogue::silu_mul) {
      for (int64_t i = 0; i < width * rows; ++i)
        finish_panel(call, row + i / width, (panel + i % width) * 16, sums[i]);
    } else if (width == 2) {
      finish_gated(call, row, rows, panel * 16, sums);
    } else {
      F32x8 halves[2 * max_finished_rows];
      for (int64_t m = 0; m < rows; ++m)
        halves[2 * m] = lower_half(sums[m]), halves[2 * m + 1] = upper_half(sums[m]);
      finish_gated(call, row, rows, panel * 16, halves);
    }
  }
}

/// Applies the epilogue to the sums of M rows by P panels, a panel from `panel` on.
template <int P, int M>
CLOVER_INLINE void finish_panels(const LinearWork& call, int64_t panel, int64_t row,
                                 const F32x16 (&sum)[P][M]) {
  static_assert(M <= max_finished_rows);
  if (call.epilogue != Epilogue::silu_mul && call.bias == nullptr && (panel + P) * 16 <= call.outputs)
    return store_panels(call, panel, row, sum);
  // A copy, because `sum` would leave its registers if it were passed by address.
  F32x16 stored[P * M];
  constexpr int paired = P / 2 * 2;
  unroll<M>([&](auto m) CLOVER_INLINED {
    unroll<paired>([&](auto p) CLOVER_INLINED { stored[p / 2 * 2 * M + 2 * m + p % 2] = sum[p][m]; });
    if constexpr (P % 2 == 1) stored[paired * M + m] = sum[P - 1][m];
  });
  finish_stored_panels(call, panel, P, row, M, stored);
}

/// Prefetches the outputs that a tile writes, which are no longer in the caches if there are many rows.
template <int P, int M>
CLOVER_INLINE void prefetch_outputs(const LinearWork& call, int64_t panel, int64_t row) {
  if (call.epilogue == Epilogue::silu_mul) return;
  const float* to = call.y + row * call.outputs + panel * 16;
  for (int m = 0; m < M; ++m, to += call.outputs)
    for (int p = 0; p < P; ++p) prefetch_line<CacheLevel::first>(to + p * 16);
}

/// LinearLoops::in_place of loops that repack all rows.
[[maybe_unused]] bool never_in_place(const LinearCall&) {
  return false;
}

}  // namespace
}  // namespace clover::kernels::cpu
