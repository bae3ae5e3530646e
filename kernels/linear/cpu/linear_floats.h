#pragma once

#include "kernels/linear/cpu/linear_result.h"

// Products in fp32 arithmetic, in tiles of M rows by P panels (16 outputs each).  Each output is one chain of
// fused multiply-adds over k, so a row's result depends neither on the shape of its tile nor on the family.
// F32xN is the family's longest vector of floats, of 8 or 16 lanes (kernels/cpu/lanes.h);
// kernels/weights/packed_weight.h explains the layout of panels.
namespace clover::kernels::cpu {
namespace {

/// Vectors that hold a value for each output of a panel.
constexpr int panel_vectors = 16 / lane_count<F32xN>;

/// How a panel's weights for a pair of inputs are read as fp32: first and second input, as many outputs as a
/// vector has lanes at a time (`part`, below panel_vectors). In bf16 panels the two inputs of an output are
/// adjacent.
struct Bf16Panel {
  using Element = uint16_t;
  static CLOVER_INLINE U32xN words(const Element* pair, int part) {
    U32xN words;
    std::memcpy(&words, pair + 2 * lane_count<F32xN> * part, sizeof words);
    return words;
  }
  static CLOVER_INLINE F32xN first(const Element* pair, int part) { return (F32xN)(words(pair, part) << 16); }
  static CLOVER_INLINE F32xN second(const Element* pair, int part) {
    return (F32xN)(words(pair, part) & 0xffff0000u);
  }
};
template <class T>
struct PlainPanel {
  using Element = T;
  static CLOVER_INLINE F32xN first(const Element* pair, int part) {
    return load_lanes<F32xN>(pair + lane_count<F32xN> * part);
  }
  static CLOVER_INLINE F32xN second(const Element* pair, int part) { return first(pair + 16, part); }
};

/// AVX2 has registers for the sums of 6 rows by one panel, AVX-512 for those of 12 rows by two.
constexpr int64_t linear_tile_rows = panel_vectors == 1 ? 12 : 6;

/// sum + value * weight, as the instruction that overwrites the sum. The compiler sometimes chooses one that
/// overwrites a factor; then it must copy registers and runs out of them.
CLOVER_INLINE F32xN accumulate(F32xN sum, F32xN value, F32xN weight) {
#if defined(__AVX512F__) || (defined(__FMA__) && !defined(CLOVER_EMULATE_AVX512_BF16))
  asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(value), "v"(weight));
  return sum;
#else
  return madd(value, weight, sum);
#endif
}

/// Packs `rows` rows of x as fp32 [inputs, rows].
template <class T>
void pack_tile(const T* x, int64_t rows, int64_t inputs, float* to) {
  for (int64_t m = 0; m < rows; ++m) {
    const T* row = x + m * inputs;
    int64_t k = 0;
    for (; k + 8 <= inputs; k += 8) {
      const F32x8 eight = load8(row + k);
      for (int lane = 0; lane < 8; ++lane) to[(k + lane) * rows + m] = eight[lane];
    }
    if (k < inputs) {
      const F32x8 part = load_part(row + k, inputs - k);
      for (int lane = 0; k < inputs; ++lane, ++k) to[k * rows + m] = part[lane];
    }
  }
}

/// How many bytes ahead weights are prefetched if every panel is read once.
constexpr int64_t prefetch_bytes = 2048;

/// Rows cut into `count` tiles of at most `max_rows` rows, of almost equal height.
struct Tiles {
  int64_t rows, count;
  explicit Tiles(int64_t all_rows, int64_t max_rows = linear_tile_rows)
      : rows(all_rows), count((all_rows + max_rows - 1) / max_rows) {}
  /// First row of a tile.
  int64_t begin(int64_t tile) const { return tile * rows / count; }
};

void linear_pack(const LinearWork& call, int64_t tile_begin, int64_t tile_end) {
  const Tiles tiles(call.rows);
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    const int64_t first = tiles.begin(tile), rows = tiles.begin(tile + 1) - first;
    float* to = call.scratch + linear_scratch(first, call.inputs);
    switch (call.element) {
      case Element::fp32:
        pack_tile(static_cast<const float*>(call.x) + first * call.inputs, rows, call.inputs, to);
        break;
      case Element::bf16:
        pack_tile(static_cast<const Bf16*>(call.x) + first * call.inputs, rows, call.inputs, to);
        break;
      case Element::fp16:
        pack_tile(static_cast<const Fp16*>(call.x) + first * call.inputs, rows, call.inputs, to);
        break;
    }
  }
}

/// Writes what a tile of M rows by P panels has summed.
template <int P, int M>
CLOVER_INLINE void finish_tile(const LinearWork& call, int64_t panel, int64_t row,
                               const F32x16 (&sum)[P][M]) {
  finish_panels(call, panel, row, sum);
}
/// The same for one panel in two vectors.
template <int P, int M>
CLOVER_INLINE void finish_tile(const LinearWork& call, int64_t panel, int64_t row,
                               const F32x8 (&sum)[2 * P][M]) {
  static_assert(P == 1);
  if (call.epilogue == Epilogue::silu_mul) {
    F32x8 sum_copy[2 * M];  // a copy, because `sum` would leave its registers if it were passed by address
    unroll<M>([&](auto m) CLOVER_INLINED { sum_copy[2 * m] = sum[0][m], sum_copy[2 * m + 1] = sum[1][m]; });
    return finish_gated(call, row, M, panel * 16, sum_copy);
  }
  unroll<M>([&](auto m) CLOVER_INLINED {
    unroll<2>([&](auto half) CLOVER_INLINED { finish(call, row + m, panel * 16 + 8 * half, sum[half][m]); });
  });
}

/// Which weights a tile prefetches while it computes.
struct Prefetch {
  int64_t from;  // bytes after each panel's first byte (linear_bf16_pairs.h ignores it if `once`)
  int64_t step;  // bytes further for each pair of inputs
  bool once;     // every panel is read by one tile only
};

/// A tile of at most so many rows does not prefetch: it only waits for memory, and the processor recognises
/// the stream of panels and reads further ahead than prefetch instructions could.  Processors with AVX-512
/// but without VDPBF16PS, all Intel's, do not (docs/decisions/0019).
#if defined(__AVX512F__) && !defined(__AVX512BF16__)
constexpr int64_t streamed_rows = 0;
#else
constexpr int64_t streamed_rows = 2;
#endif
static_assert(2 * streamed_rows < linear_tile_rows, "if there are several tiles, each of them prefetches");

/// Panels that a tile of M rows computes at once: AVX-512 has registers for two.
template <int M>
constexpr int panels_at_once = panel_vectors == 1 && M > streamed_rows ? 2 : 1;

/// Computes P panels for a tile of M rows from `row` on.
template <class Panel, int M, int P>
void linear_tile(const LinearWork& call, int64_t panel, int64_t row, int64_t panel_elements,
                 Prefetch prefetch) {
  using T = typename Panel::Element;
  const T* weights = static_cast<const T*>(call.panels) + panel * panel_elements;
  const float* x = call.scratch + linear_scratch(row, call.inputs);
  F32xN sum[P * panel_vectors][M] = {};
  // Adds the products of one input; weight(v): the weights in its v-th vector of outputs.
  const auto add_input = [&](const auto& weight, const float* input) CLOVER_INLINED {
    // Hides the address from the compiler, which would otherwise keep one for each row in registers.
    asm volatile("" : "+r"(input));
    F32xN weight_of[P * panel_vectors];
    unroll<P * panel_vectors>([&](auto v) CLOVER_INLINED { weight_of[v] = weight(v); });
    unroll<M>([&](auto m) CLOVER_INLINED {
      const F32xN value = broadcast<F32xN>(input[m]);
      unroll<P * panel_vectors>(
          [&](auto v) CLOVER_INLINED { sum[v][m] = accumulate(sum[v][m], value, weight_of[v]); });
    });
  };
  const auto first = [&](auto v) CLOVER_INLINED {
    return Panel::first(weights + v / panel_vectors * panel_elements, v % panel_vectors);
  };
  const auto second = [&](auto v) CLOVER_INLINED {
    return Panel::second(weights + v / panel_vectors * panel_elements, v % panel_vectors);
  };
  const int64_t pairs = call.inputs / 2, panel_bytes = panel_elements * static_cast<int64_t>(sizeof(T));
  const char* ahead = reinterpret_cast<const char*>(weights) + prefetch.from;
  // From this pair on, the first pairs of the next P panels are prefetched.
  const int64_t next_panels_from = prefetch.once ? pairs - prefetch.from / prefetch.step : pairs;
  for (int64_t pair = 0; pair < pairs; ++pair, weights += 32, x += 2 * M, ahead += prefetch.step) {
    if constexpr (M > streamed_rows) {
      if (P > 1 && pair == next_panels_from) ahead += (P - 1) * panel_bytes;
      unroll<P>([&](auto p) CLOVER_INLINED {
        prefetch_line<CacheLevel::first>(ahead + p * panel_bytes);
        if (sizeof(T) == 4) prefetch_line<CacheLevel::first>(ahead + p * panel_bytes + 64);
      });
    }
    add_input(first, x);
    add_input(second, x + M);
  }
  if (call.inputs % 2 != 0) add_input(first, x);
  finish_tile<P, M>(call, panel, row, sum);
}

/// Computes panels [begin, end) for a tile of M rows from `row` on.
template <class Panel, int M>
void linear_rows(const LinearWork& call, int64_t begin, int64_t end, int64_t row, int64_t panel_elements,
                 Prefetch prefetch) {
  constexpr int P = panels_at_once<M>;
  int64_t panel = begin;
  for (; panel + P <= end; panel += P) linear_tile<Panel, M, P>(call, panel, row, panel_elements, prefetch);
  if constexpr (P > 1)
    for (; panel < end; ++panel) linear_tile<Panel, M, 1>(call, panel, row, panel_elements, prefetch);
}

/// The same for a tile of `rows` rows, M or more.
template <class Panel, int M = 1>
void linear_tile_of(const LinearWork& call, int64_t begin, int64_t end, int64_t row, int64_t rows,
                    int64_t panel_elements, Prefetch prefetch) {
  if constexpr (M <= linear_tile_rows) {
    if (rows != M) return linear_tile_of<Panel, M + 1>(call, begin, end, row, rows, panel_elements, prefetch);
    linear_rows<Panel, M>(call, begin, end, row, panel_elements, prefetch);
  }
}

/// LinearLoops::panels for one layout of weights.
template <class Panel>
void linear_any(const LinearWork& call, int64_t begin, int64_t end, int64_t tile_begin, int64_t tile_end,
                int64_t panel_elements) {
  constexpr int64_t pair_bytes = 32 * sizeof(typename Panel::Element);
  const Tiles tiles(call.rows);
  const int64_t count = tile_end - tile_begin, panel_bytes = panel_elements * (pair_bytes / 32);
  if (count == 1) {
    const int64_t row = tiles.begin(tile_begin);
    return linear_tile_of<Panel>(call, begin, end, row, tiles.begin(tile_end) - row, panel_elements,
                                 {prefetch_bytes, pair_bytes, true});
  }
  // A few panels stay in a cache while all tiles use them, and each tile prefetches a part of the next ones.
  constexpr int64_t step = panels_at_once<linear_tile_rows>;
  for (int64_t panel = begin; panel < end; panel += step) {
    const int64_t last = panel + step < end ? panel + step : end;
    for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
      const int64_t row = tiles.begin(tile);
      linear_tile_of<Panel>(
          call, panel, last, row, tiles.begin(tile + 1) - row, panel_elements,
          {step * panel_bytes + (tile - tile_begin) * panel_bytes / count, pair_bytes / count, false});
    }
  }
}

void linear_panels(const LinearWork& call, int64_t begin, int64_t end, int64_t tile_begin, int64_t tile_end) {
  switch (call.element) {
    case Element::fp32:
      return linear_any<PlainPanel<float>>(call, begin, end, tile_begin, tile_end, call.inputs * 16);
    case Element::bf16:
      return linear_any<Bf16Panel>(call, begin, end, tile_begin, tile_end, (call.inputs + 31) / 32 * 32 * 16);
    case Element::fp16:
      return linear_any<PlainPanel<Fp16>>(call, begin, end, tile_begin, tile_end, call.inputs * 16);
  }
}

constexpr LinearLoops linear_of_floats{linear_tile_rows, sizeof(float), 384 << 10,
                                       never_in_place,   linear_pack,   linear_panels};

}  // namespace
}  // namespace clover::kernels::cpu
