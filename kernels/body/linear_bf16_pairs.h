#pragma once

#include "kernels/body/linear.h"
#if defined(CLOVER_EMULATE_AVX512_BF16)  // tests on machines without the instruction
#include <simde/x86/avx512/dpbf16.h>
#endif

// bf16 tiles of the family that multiplies pairs of inputs at once (VDPBF16PS): one line of a panel, 16
// outputs by two inputs, against one row's pair.  Each output is one chain of such steps over k.
namespace clover::kernels::cpu {
namespace {

constexpr int64_t pair_tile_rows = 12;

/// So many read one panel after the other, as one stream (streamed_rows).
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

/// Rows of x as pairs of inputs, pair-major within a tile of `rows` rows; an odd K gets one zero.  Element by
/// element: turned about in registers they would leave in lines that cross those of the cache, which the
/// other threads have read, and take twice as long.
void pack_pair_tile(const uint16_t* x, int64_t rows, int64_t inputs, uint32_t* to) {
  for (int64_t m = 0; m < rows; ++m) {
    const uint16_t* row = x + m * inputs;
    for (int64_t pair = 0; pair < inputs / 2; ++pair) std::memcpy(to + pair * rows + m, row + 2 * pair, 4);
    if (inputs % 2 != 0) to[inputs / 2 * rows + m] = row[inputs - 1];
  }
}

/// Whether x is as a tile wants it: one row of pairs.
bool is_packed(const LinearWork& call) {
  return call.rows == 1 && call.inputs % 2 == 0;
}

void pair_linear_pack(const LinearWork& call, int64_t tile_begin, int64_t tile_end) {
  if (is_packed(call)) return;
  const Tiles tiles(call.rows, pair_tile_rows);
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    const int64_t first = tiles.begin(tile);
    pack_pair_tile(static_cast<const uint16_t*>(call.x) + first * call.inputs, tiles.begin(tile + 1) - first,
                   call.inputs,
                   reinterpret_cast<uint32_t*>(call.scratch + linear_scratch(first, call.inputs)));
  }
}

/// How far ahead a tile asks for each of its P panels where they pass once: more panels side by side are more
/// on its way.
template <int P>
constexpr int64_t pairs_ahead = 4 * prefetch_bytes / P / 64;

/// Weights asked for into the second-level cache arrive sooner, where several streams of them would drive
/// each other out of the first.  With more rows a tile is bound by arithmetic, which must find them in the
/// first.
constexpr CacheLevel level_of_weights(int64_t rows) {
  return rows <= 8 ? CacheLevel::second : CacheLevel::first;
}

template <int P, int M>
void pair_tile(const LinearWork& call, int64_t panel, int64_t row, int64_t panel_words, Prefetch prefetch) {
  constexpr int64_t near = pairs_ahead<P>;
  const uint32_t* weights = static_cast<const uint32_t*>(call.panels) + panel * panel_words;
  const char* ahead = reinterpret_cast<const char*>(weights) + (prefetch.once ? near * 64 : prefetch.from);
  const int64_t pairs = (call.inputs + 1) / 2;
  // Behind the last pairs of P panels come the first of the next P.
  const int64_t turn = prefetch.once ? pairs - near : pairs;
  const auto* x = is_packed(call)
                      ? static_cast<const char*>(call.x)
                      : reinterpret_cast<const char*>(call.scratch + linear_scratch(row, call.inputs));
  F16 sum[P][M] = {};
  for (int64_t pair = 0; pair < pairs; ++pair, weights += 16, x += 4 * M, ahead += prefetch.step) {
    if (pair == turn) ahead += (P - 1) * panel_words * 4;
    U16 line[P];
    each<P>([&](auto p) CLOVER_INLINED {
      line[p] = load_line<U16>(weights + p * panel_words);
      if constexpr (M > streamed_pair_rows) ask_for<level_of_weights(M)>(ahead + p * panel_words * 4);
    });
    each<M>([&](auto m) CLOVER_INLINED {
      uint32_t pair_of_row;
      std::memcpy(&pair_of_row, x + 4 * m, 4);
      const U16 value = splat_pair(pair_of_row);
      each<P>([&](auto p) CLOVER_INLINED { sum[p][m] = add_products(sum[p][m], line[p], value); });
    });
  }
  each<P>([&](auto p) CLOVER_INLINED {
    each<M>([&](auto m) CLOVER_INLINED { finish_panel(call, row + m, (panel + p) * 16, sum[p][m]); });
  });
}

template <int M>
constexpr int pair_panels_beside = M <= streamed_pair_rows ? 1
                                   : M <= 8                ? 3
                                                           : 2;

/// Calls the tile function of `rows` rows (1 .. pair_tile_rows).
template <int M = 1>
void pair_rows(const LinearWork& call, int64_t begin, int64_t end, int64_t row, int64_t rows,
               int64_t panel_words, Prefetch prefetch) {
  if constexpr (M <= pair_tile_rows) {
    if (rows != M) return pair_rows<M + 1>(call, begin, end, row, rows, panel_words, prefetch);
    constexpr int beside = pair_panels_beside<M>;
    int64_t panel = begin;
    for (; panel + beside <= end; panel += beside)
      pair_tile<beside, M>(call, panel, row, panel_words, prefetch);
    if constexpr (beside > 2)
      for (; panel + 2 <= end; panel += 2) pair_tile<2, M>(call, panel, row, panel_words, prefetch);
    for (; panel < end; ++panel) pair_tile<1, M>(call, panel, row, panel_words, prefetch);
  }
}

void pair_linear_panels(const LinearWork& call, int64_t begin, int64_t end, int64_t tile_begin,
                        int64_t tile_end) {
  const Tiles tiles(call.rows, pair_tile_rows);
  const int64_t panel_words = (call.inputs + 31) / 32 * 16 * 16;
  const int64_t count = tile_end - tile_begin;
  // With several tiles a few panels stay in the nearest cache while all tiles use them, each fetching a part
  // of the next ones.
  const int64_t step = count == 1 ? end - begin : 2;
  for (int64_t panel = begin; panel < end; panel += step) {
    const int64_t last = panel + step < end ? panel + step : end;
    for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
      const int64_t row = tiles.begin(tile);
      const int64_t ahead = step * panel_words * 4 + (tile - tile_begin) * panel_words * 4 / count;
      const Prefetch prefetch =
          count == 1 ? Prefetch{prefetch_bytes, 64, true} : Prefetch{ahead, 64 / count, false};
      pair_rows(call, panel, last, row, tiles.begin(tile + 1) - row, panel_words, prefetch);
    }
  }
}

}  // namespace
}  // namespace clover::kernels::cpu
