#pragma once

#include "kernels/linear/cpu/linear_result.h"

// Products in fp32 arithmetic, in tiles of one panel (16 outputs) by M rows.  Each output is one chain of
// fused multiply-adds over k, so a row's result does not depend on the shape of its tile.  F32x8 is a vector
// of eight floats (kernels/cpu/lanes.h); kernels/weights/packed_weight.h explains the layout of panels.
namespace clover::kernels::cpu {
namespace {

/// How a panel's weights for a pair of inputs are read as fp32: first and second input, eight outputs (`half`
/// 0 or 1) at a time. In bf16 panels the two inputs of an output are adjacent.
struct Bf16Panel {
  using Element = uint16_t;
  static CLOVER_INLINE U32x8 word(const Element* pair, int half) {
    U32x8 words;
    std::memcpy(&words, pair + 16 * half, sizeof words);
    return words;
  }
  static CLOVER_INLINE F32x8 first(const Element* pair, int half) { return (F32x8)(word(pair, half) << 16); }
  static CLOVER_INLINE F32x8 second(const Element* pair, int half) {
    return (F32x8)(word(pair, half) & 0xffff0000u);
  }
};
template <class T>
struct PlainPanel {
  using Element = T;
  static CLOVER_INLINE F32x8 first(const Element* pair, int half) { return load8(pair + 8 * half); }
  static CLOVER_INLINE F32x8 second(const Element* pair, int half) { return load8(pair + 16 + 8 * half); }
};

constexpr int64_t linear_tile_rows = 6;

/// sum + value * weight, as the instruction that overwrites the sum. The compiler sometimes chooses one that
/// overwrites a factor; then it must copy registers and runs out of them.
CLOVER_INLINE F32x8 accumulate(F32x8 sum, F32x8 value, F32x8 weight) {
#if defined(__FMA__)
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

/// Which weights a tile prefetches while it computes.
struct Prefetch {
  int64_t from;  // bytes after the panel's first byte (linear_bf16_pairs.h ignores it if `once`)
  int64_t step;  // bytes further for each pair of inputs
  bool once;     // every panel is read by one tile only
};

/// A tile of at most so many rows does not prefetch: it only waits for memory, and the processor recognises
/// the stream of panels and reads further ahead than prefetch instructions could.
constexpr int64_t streamed_rows = 2;
static_assert(2 * streamed_rows < linear_tile_rows, "if there are several tiles, each of them prefetches");

/// Computes one panel for a tile of M rows from `row` on.
template <class Panel, int M>
void linear_tile(const LinearWork& call, int64_t panel, int64_t row, int64_t panel_elements,
                 Prefetch prefetch) {
  using T = typename Panel::Element;
  const T* weights = static_cast<const T*>(call.panels) + panel * panel_elements;
  const float* x = call.scratch + linear_scratch(row, call.inputs);
  F32x8 sum[2][M] = {};
  // Adds the products of one input: the panel's weights in two halves, by each row's value.
  const auto add_input = [&](F32x8 low, F32x8 high, const float* input) CLOVER_INLINED {
    // Hides the address from the compiler, which would otherwise keep one for each row in registers.
    asm volatile("" : "+r"(input));
    unroll<M>([&](auto m) CLOVER_INLINED {
      const F32x8 value = splat(input[m]);
      sum[0][m] = accumulate(sum[0][m], value, low);
      sum[1][m] = accumulate(sum[1][m], value, high);
    });
  };
  const int64_t pairs = call.inputs / 2;
  const char* ahead = reinterpret_cast<const char*>(weights) + prefetch.from;
  for (int64_t pair = 0; pair < pairs; ++pair, weights += 32, x += 2 * M, ahead += prefetch.step) {
    if constexpr (M > streamed_rows) {
      prefetch_line<CacheLevel::first>(ahead);
      if (sizeof(T) == 4) prefetch_line<CacheLevel::first>(ahead + 64);
    }
    add_input(Panel::first(weights, 0), Panel::first(weights, 1), x);
    add_input(Panel::second(weights, 0), Panel::second(weights, 1), x + M);
  }
  if (call.inputs % 2 != 0) add_input(Panel::first(weights, 0), Panel::first(weights, 1), x);
  if (call.epilogue == Epilogue::silu_mul) {
    F32x8 sum_copy[2 * M];  // a copy, because `sum` would leave its registers if it were passed by address
    unroll<M>([&](auto m) CLOVER_INLINED { sum_copy[2 * m] = sum[0][m], sum_copy[2 * m + 1] = sum[1][m]; });
    return finish_gated(call, row, M, panel * 16, sum_copy);
  }
  unroll<M>([&](auto m) CLOVER_INLINED {
    unroll<2>([&](auto half) CLOVER_INLINED { finish(call, row + m, panel * 16 + 8 * half, sum[half][m]); });
  });
}

/// Computes panels [begin, end) for a tile of M rows from `row` on.
template <class Panel, int M>
void linear_rows(const LinearWork& call, int64_t begin, int64_t end, int64_t row, int64_t panel_elements,
                 Prefetch prefetch) {
  for (int64_t panel = begin; panel < end; ++panel)
    linear_tile<Panel, M>(call, panel, row, panel_elements, prefetch);
}

/// The same for a tile of `rows` rows.
template <class Panel>
void linear_tile_of(const LinearWork& call, int64_t begin, int64_t end, int64_t row, int64_t rows,
                    int64_t panel_elements, Prefetch prefetch) {
  switch (rows) {
    case 1:
      return linear_rows<Panel, 1>(call, begin, end, row, panel_elements, prefetch);
    case 2:
      return linear_rows<Panel, 2>(call, begin, end, row, panel_elements, prefetch);
    case 3:
      return linear_rows<Panel, 3>(call, begin, end, row, panel_elements, prefetch);
    case 4:
      return linear_rows<Panel, 4>(call, begin, end, row, panel_elements, prefetch);
    case 5:
      return linear_rows<Panel, 5>(call, begin, end, row, panel_elements, prefetch);
    case 6:
      return linear_rows<Panel, 6>(call, begin, end, row, panel_elements, prefetch);
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
  // A panel stays in the first-level cache while all tiles use it, and each tile prefetches a part of the
  // next panel.
  for (int64_t panel = begin; panel < end; ++panel) {
    for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
      const int64_t row = tiles.begin(tile);
      linear_tile_of<Panel>(
          call, panel, panel + 1, row, tiles.begin(tile + 1) - row, panel_elements,
          {panel_bytes + (tile - tile_begin) * panel_bytes / count, pair_bytes / count, false});
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
