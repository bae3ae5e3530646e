#pragma once

#include "kernels/linear/cpu/linear_floats.h"
#if defined(CLOVER_EMULATE_AVX512_BF16)  // tests on machines without the instruction
#include <simde/x86/avx512/dpbf16.h>
#endif

// Products of bf16 weights with the instruction VDPBF16PS, which multiplies pairs of inputs: one line of a
// panel (16 outputs by two inputs, 64 bytes) by the same pair of a row. Each output is one chain of such
// instructions over k. F32x16 and U32x16 are vectors of 16 lanes (kernels/cpu/lanes.h). A tile is M rows by P
// panels. Template argument `Once`: there is one tile of rows, so that every
// panel is read once.
namespace clover::kernels::cpu {
namespace {

constexpr int64_t pair_tile_rows = 12;

/// Tiles of at most so many rows read one panel after the other and do not prefetch (see streamed_rows in
/// linear_floats.h).
constexpr int64_t streamed_pair_rows = 5;
static_assert(2 * streamed_pair_rows < pair_tile_rows);

/// sum + the products of 16 outputs' weights with one pair of inputs in every lane.
CLOVER_INLINE F32x16 add_products(F32x16 sum, U32x16 weights, U32x16 pair) {
#if defined(CLOVER_EMULATE_AVX512_BF16)
  return (F32x16)simde_mm512_dpbf16_ps((simde__m512)sum, (simde__m512bh)weights, (simde__m512bh)pair);
#else
  return (F32x16)_mm512_dpbf16_ps((__m512)sum, (__m512bh)weights, (__m512bh)pair);
#endif
}

CLOVER_INLINE U32x16 splat_pair(uint32_t pair) {
  return U32x16{pair, pair, pair, pair, pair, pair, pair, pair,
                pair, pair, pair, pair, pair, pair, pair, pair};
}

/// Packs `rows` rows of x as pairs of inputs [ceil(inputs / 2), rows]; an odd number of inputs is padded with
/// 0. It copies pair by pair: a transposition in registers takes twice as long, because its stores straddle
/// cache lines that other threads have read.
void pack_pair_tile(const uint16_t* x, int64_t rows, int64_t inputs, uint32_t* to) {
  for (int64_t m = 0; m < rows; ++m) {
    const uint16_t* row = x + m * inputs;
    for (int64_t pair = 0; pair < inputs / 2; ++pair) std::memcpy(to + pair * rows + m, row + 2 * pair, 4);
    if (inputs % 2 != 0) to[inputs / 2 * rows + m] = row[inputs - 1];
  }
}

/// Whether rows are read in place. Few rows are packed, because they wait for weights, and fewer streams from
/// memory help. Many rows are not, because a tile of them stays in the caches.
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

/// How many pairs of inputs (64 bytes of weights each) ahead a tile prefetches each of its P panels, if they
/// are read once: with more panels, each is prefetched less far ahead.
template <int P>
constexpr int64_t pairs_ahead = 4 * prefetch_bytes / P / 64;

/// The cache that weights are prefetched to. Usually the second level, because several streams would evict
/// each other from the first. A single tile of more than 8 rows is bound by arithmetic and needs its weights
/// in the first level.
template <bool Once>
constexpr CacheLevel level_of_weights(int64_t rows) {
  return Once && rows > 8 ? CacheLevel::first : CacheLevel::second;
}

/// Reads the packed pairs of inputs of a tile's M rows, one pair of all rows after the other.
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
    unroll<row_triples>(
        [&](auto i) CLOVER_INLINED { next_[i] = static_cast<const char*>(call.x) + (row + 3 * i) * bytes_; });
  }

  CLOVER_INLINE const char* pair(int m) const { return next_[m / 3] + m % 3 * bytes_; }
  CLOVER_INLINE void advance() {
    unroll<row_triples>([&](auto i) CLOVER_INLINED {
      next_[i] += 4;
      // Hides from the compiler that these pointers have a fixed distance; it would keep one distance for
      // each row and run out of registers.
      asm volatile("" : "+r"(next_[i]));
    });
  }

 private:
  // A pointer for every three rows, since registers do not suffice for one for each row.
  static constexpr int row_triples = (M + 2) / 3;
  const char* next_[row_triples];
  int64_t bytes_;
};

/// Computes P panels for the M rows of a tile.
template <int P, int M, bool Once, class Rows>
void pair_tile(const LinearWork& call, int64_t panel, int64_t row, int64_t panel_words, Prefetch prefetch) {
  constexpr int64_t pairs_to_prefetch = pairs_ahead<P>;
  const uint32_t* weights = static_cast<const uint32_t*>(call.panels) + panel * panel_words;
  const char* ahead =
      reinterpret_cast<const char*>(weights) + (Once ? pairs_to_prefetch * 64 : prefetch.from);
  const int64_t pairs = (call.inputs + 1) / 2;
  // From this pair on, the first pairs of the next P panels are prefetched.
  const int64_t next_panels_from = Once ? pairs - pairs_to_prefetch : pairs;
  Rows rows(call, row);
  if constexpr (!Once) prefetch_outputs<P, M>(call, panel, row);
  F32x16 sum[P][M] = {};
  for (int64_t pair = 0; pair < pairs; ++pair, weights += 16, rows.advance(), ahead += prefetch.step) {
    if (Once && pair == next_panels_from) ahead += (P - 1) * panel_words * 4;
    U32x16 line[P];
    unroll<P>([&](auto p) CLOVER_INLINED {
      line[p] = load_line<U32x16>(weights + p * panel_words);
      if constexpr (M > streamed_pair_rows)
        prefetch_line<level_of_weights<Once>(M)>(ahead + p * panel_words * 4);
    });
    unroll<M>([&](auto m) CLOVER_INLINED {
      uint32_t pair_of_row;
      std::memcpy(&pair_of_row, rows.pair(m), 4);
      const U32x16 value = splat_pair(pair_of_row);
      unroll<P>([&](auto p) CLOVER_INLINED { sum[p][m] = add_products(sum[p][m], line[p], value); });
    });
  }
  finish_panels(call, panel, row, sum);
}

/// Panels that a tile of M rows computes at once, if it is the only one.
template <int M>
constexpr int pair_panels_at_once = M <= streamed_pair_rows ? 1
                                    : M <= 8                ? 3
                                                            : 2;

/// Panels [begin, end) for the M rows of one tile.
template <int M, bool Once, class Rows>
void pair_panels(const LinearWork& call, int64_t begin, int64_t end, int64_t row, int64_t panel_words,
                 Prefetch prefetch) {
  constexpr int P = Once ? pair_panels_at_once<M> : 2;
  int64_t panel = begin;
  for (; panel + P <= end; panel += P) pair_tile<P, M, Once, Rows>(call, panel, row, panel_words, prefetch);
  if constexpr (P > 2)
    for (; panel + 2 <= end; panel += 2) pair_tile<2, M, Once, Rows>(call, panel, row, panel_words, prefetch);
  for (; panel < end; ++panel) pair_tile<1, M, Once, Rows>(call, panel, row, panel_words, prefetch);
}

/// A product whose rows are one tile of M or more rows.
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

/// One of several tiles, of `rows` rows, M or more.
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
  // Two panels are multiplied with all tiles of rows; each tile prefetches a part of the next two panels.
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
