#pragma once

#include "kernels/linear/cpu/linear_floats.h"
#if defined(CLOVER_EMULATE_AVX512_BF16)  // tests on machines without the instruction
#include <simde/x86/avx512/dpbf16.h>
#endif

// Products of bf16 weights by VDPBF16PS, which multiplies pairs of inputs: one line of a panel, 16 outputs by
// two inputs, times one row's pair. Each output is one chain of such steps over k.
namespace clover::kernels::cpu {
namespace {

constexpr int64_t pair_tile_rows = 12;

/// Up to so many rows read one panel after the other, as one stream (streamed_rows).
constexpr int64_t streamed_pair_rows = 5;
static_assert(2 * streamed_pair_rows < pair_tile_rows);

CLOVER_INLINE F16 add_products(F16 sum, U16 weights, U16 pair) {
#if defined(CLOVER_EMULATE_AVX512_BF16)
  return (F16)simde_mm512_dpbf16_ps((simde__m512)sum, (simde__m512bh)weights, (simde__m512bh)pair);
#else
  return (F16)_mm512_dpbf16_ps((__m512)sum, (__m512bh)weights, (__m512bh)pair);
#endif
}

CLOVER_INLINE U16 splat_pair(uint32_t pair) {
  return U16{pair, pair, pair, pair, pair, pair, pair, pair, pair, pair, pair, pair, pair, pair, pair, pair};
}

/// Packs rows of x as pairs of inputs, pair-major within a tile of `rows` rows; an odd K gets one zero. It
/// copies element by element: transposed in registers, the pairs would be stored in lines that straddle cache
/// lines which other threads have read, and that takes twice as long.
void pack_pair_tile(const uint16_t* x, int64_t rows, int64_t inputs, uint32_t* to) {
  for (int64_t m = 0; m < rows; ++m) {
    const uint16_t* row = x + m * inputs;
    for (int64_t pair = 0; pair < inputs / 2; ++pair) std::memcpy(to + pair * rows + m, row + 2 * pair, 4);
    if (inputs % 2 != 0) to[inputs / 2 * rows + m] = row[inputs - 1];
  }
}

/// Few rows wait for weights, which should be a stream of their own beside packed rows. Many rows are read in
/// place: a tile of them stays in a near cache.
bool pairs_in_place(const LinearCall& call) {
  return call.inputs % 2 == 0 && (call.rows == 1 || call.rows > pair_tile_rows);
}

void pair_linear_pack(const LinearWork& call, int64_t tile_begin, int64_t tile_end) {
  const Tiles tiles(call.rows, pair_tile_rows);
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    const int64_t first = tiles.begin(tile);
    pack_pair_tile(static_cast<const uint16_t*>(call.x) + first * call.inputs, tiles.begin(tile + 1) - first,
                   call.inputs,
                   reinterpret_cast<uint32_t*>(call.scratch + linear_scratch(first, call.inputs)));
  }
}

/// How far ahead a tile prefetches each of its P panels, where they are read once: more panels side by side
/// are more loads in flight.
template <int P>
constexpr int64_t pairs_ahead = 4 * prefetch_bytes / P / 64;

/// Where to prefetch weights: the second-level cache, where several streams would evict each other from the
/// first and requests to it return sooner. A tile that is the only one and has more rows is bound by
/// arithmetic and must find its weights in the first level; several tiles use the panels that are there while
/// the next ones arrive.
template <bool Once>
constexpr CacheLevel level_of_weights(int64_t rows) {
  return Once && rows > 8 ? CacheLevel::first : CacheLevel::second;
}

/// The pairs of inputs of a tile's M rows, one after the other.
template <int M>
class PackedRows {
 public:
  PackedRows(const LinearWork& call, int64_t row)
      : next_(reinterpret_cast<const char*>(call.scratch + linear_scratch(row, call.inputs))) {}

  CLOVER_INLINE const char* pair(int m) const { return next_ + 4 * m; }
  CLOVER_INLINE void advance() { next_ += 4 * M; }

 private:
  const char* next_;
};

/// The same for rows that are read in place.
template <int M>
class RowsInPlace {
 public:
  CLOVER_INLINE RowsInPlace(const LinearWork& call, int64_t row) : bytes_(call.inputs * 2) {
    each<threes>(
        [&](auto i) CLOVER_INLINED { next_[i] = static_cast<const char*>(call.x) + (row + 3 * i) * bytes_; });
  }

  CLOVER_INLINE const char* pair(int m) const { return next_[m / 3] + m % 3 * bytes_; }
  CLOVER_INLINE void advance() {
    each<threes>([&](auto i) CLOVER_INLINED {
      next_[i] += 4;
      // Hides how far they are apart, or the compiler keeps a distance a row, more than it has registers for.
      asm volatile("" : "+r"(next_[i]));
    });
  }

 private:
  static constexpr int threes = (M + 2) / 3;
  const char* next_[threes];
  int64_t bytes_;
};

/// Stores the outputs of P whole panels and M rows.
template <int P, int M>
CLOVER_INLINE void store_pairs(const LinearWork& call, int64_t panel, int64_t row, const F16 (&sum)[P][M]) {
  const int64_t outputs = call.outputs;
  float* to = call.y + row * outputs + panel * 16;
  const bool accumulate = call.accumulate;
  each<M>([&](auto m) CLOVER_INLINED {
    each<P>([&](auto p) CLOVER_INLINED {
      float* line = to + p * 16;
      store_line(line, accumulate ? load_line<F16>(line) + sum[p][m] : sum[p][m]);
    });
    to += outputs;
  });
}

template <int P, int M>
CLOVER_INLINE void finish_pairs(const LinearWork& call, int64_t panel, int64_t row, const F16 (&sum)[P][M]) {
  if (call.epilogue != Epilogue::silu_mul) {
    if (call.bias == nullptr && (panel + P) * 16 <= call.outputs) return store_pairs(call, panel, row, sum);
    each<P>([&](auto p) CLOVER_INLINED {
      each<M>([&](auto m) CLOVER_INLINED { finish_panel(call, row + m, (panel + p) * 16, sum[p][m]); });
    });
    return;
  }
  // `sum` by variable numbers would not stay in registers.
  if constexpr (P >= 2) {
    F16 kept[2 * M];
    each<M>([&](auto m) CLOVER_INLINED { kept[2 * m] = sum[0][m], kept[2 * m + 1] = sum[1][m]; });
    finish_gated(call, row, M, panel * 16, kept);
  }
  if constexpr (P % 2 == 1) {
    F8 kept[2 * M];
    each<M>([&](auto m) CLOVER_INLINED {
      kept[2 * m] = lower_half(sum[P - 1][m]), kept[2 * m + 1] = upper_half(sum[P - 1][m]);
    });
    finish_gated(call, row, M, (panel + P - 1) * 16, kept);
  }
}

/// Where the outputs of many rows are stored, in memory that no near cache holds by then.
template <int P, int M>
CLOVER_INLINE void ask_for_outputs(const LinearWork& call, int64_t panel, int64_t row) {
  if (call.epilogue == Epilogue::silu_mul) return;
  const float* to = call.y + row * call.outputs + panel * 16;
  for (int m = 0; m < M; ++m, to += call.outputs)
    for (int p = 0; p < P; ++p) ask_for<CacheLevel::first>(to + p * 16);
}

template <int P, int M, bool Once, class Rows>
void pair_tile(const LinearWork& call, int64_t panel, int64_t row, int64_t panel_words, Prefetch prefetch) {
  constexpr int64_t near = pairs_ahead<P>;
  const uint32_t* weights = static_cast<const uint32_t*>(call.panels) + panel * panel_words;
  const char* ahead = reinterpret_cast<const char*>(weights) + (Once ? near * 64 : prefetch.from);
  const int64_t pairs = (call.inputs + 1) / 2;
  // Behind the last pairs of P panels come the first of the next P.
  const int64_t turn = Once ? pairs - near : pairs;
  Rows rows(call, row);
  if constexpr (!Once) ask_for_outputs<P, M>(call, panel, row);
  F16 sum[P][M] = {};
  for (int64_t pair = 0; pair < pairs; ++pair, weights += 16, rows.advance(), ahead += prefetch.step) {
    if (Once && pair == turn) ahead += (P - 1) * panel_words * 4;
    U16 line[P];
    each<P>([&](auto p) CLOVER_INLINED {
      line[p] = load_line<U16>(weights + p * panel_words);
      if constexpr (M > streamed_pair_rows) ask_for<level_of_weights<Once>(M)>(ahead + p * panel_words * 4);
    });
    each<M>([&](auto m) CLOVER_INLINED {
      uint32_t pair_of_row;
      std::memcpy(&pair_of_row, rows.pair(m), 4);
      const U16 value = splat_pair(pair_of_row);
      each<P>([&](auto p) CLOVER_INLINED { sum[p][m] = add_products(sum[p][m], line[p], value); });
    });
  }
  finish_pairs(call, panel, row, sum);
}

template <int M>
constexpr int pair_panels_beside = M <= streamed_pair_rows ? 1
                                   : M <= 8                ? 3
                                                           : 2;

/// Panels [begin, end) for the M rows of one tile.
template <int M, bool Once, class Rows>
void pair_panels(const LinearWork& call, int64_t begin, int64_t end, int64_t row, int64_t panel_words,
                 Prefetch prefetch) {
  constexpr int beside = Once ? pair_panels_beside<M> : 2;
  int64_t panel = begin;
  for (; panel + beside <= end; panel += beside)
    pair_tile<beside, M, Once, Rows>(call, panel, row, panel_words, prefetch);
  if constexpr (beside > 2)
    for (; panel + 2 <= end; panel += 2) pair_tile<2, M, Once, Rows>(call, panel, row, panel_words, prefetch);
  for (; panel < end; ++panel) pair_tile<1, M, Once, Rows>(call, panel, row, panel_words, prefetch);
}

/// A product whose rows are one tile, M or more of them.
template <int M = 1>
void pair_one_tile(const LinearWork& call, int64_t begin, int64_t end, int64_t panel_words) {
  if constexpr (M <= pair_tile_rows) {
    if (call.rows != M) return pair_one_tile<M + 1>(call, begin, end, panel_words);
    const Prefetch prefetch{prefetch_bytes, 64, true};
    if constexpr (M == 1)
      if (pairs_in_place(call))
        return pair_panels<M, true, RowsInPlace<M>>(call, begin, end, 0, panel_words, prefetch);
    pair_panels<M, true, PackedRows<M>>(call, begin, end, 0, panel_words, prefetch);
  }
}

/// One of several tiles, of M rows or more.
template <int M = pair_tile_rows / 2>
void pair_tile_of(const LinearWork& call, int64_t begin, int64_t end, int64_t row, int64_t rows,
                  int64_t panel_words, Prefetch prefetch) {
  if constexpr (M <= pair_tile_rows) {
    if (rows != M) return pair_tile_of<M + 1>(call, begin, end, row, rows, panel_words, prefetch);
    if (pairs_in_place(call))
      pair_panels<M, false, RowsInPlace<M>>(call, begin, end, row, panel_words, prefetch);
    else
      pair_panels<M, false, PackedRows<M>>(call, begin, end, row, panel_words, prefetch);
  }
}

void pair_linear_panels(const LinearWork& call, int64_t begin, int64_t end, int64_t tile_begin,
                        int64_t tile_end) {
  const Tiles tiles(call.rows, pair_tile_rows);
  const int64_t panel_words = (call.inputs + 31) / 32 * 16 * 16;
  const int64_t count = tile_end - tile_begin;
  if (tiles.count == 1) return pair_one_tile(call, begin, end, panel_words);
  // Two panels are multiplied with all tiles of rows, each of which prefetches a part of the next two.
  constexpr int64_t step = 2;
  const int64_t share = panel_words * 4 / count, share_step = 64 / count;
  for (int64_t panel = begin; panel < end; panel += step) {
    const int64_t last = panel + step < end ? panel + step : end;
    int64_t ahead = step * panel_words * 4, row = tiles.begin(tile_begin);
    for (int64_t tile = tile_begin; tile < tile_end; ++tile, ahead += share) {
      const int64_t next = tiles.begin(tile + 1);
      pair_tile_of(call, panel, last, row, next - row, panel_words, {ahead, share_step, false});
      row = next;
    }
  }
}

constexpr LinearLoops linear_of_pairs{pair_tile_rows, sizeof(uint16_t), 512 << 10,
                                      pairs_in_place, pair_linear_pack, pair_linear_panels};

}  // namespace
}  // namespace clover::kernels::cpu
