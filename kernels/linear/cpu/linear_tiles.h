#pragma once

#include "kernels/cpu/amx_registers.h"
#include "kernels/linear/cpu/linear_result.h"

// Products of bf16 weights on AMX tile registers: one instruction multiplies 16 rows by 32 inputs with 32
// inputs by 16 outputs, so it costs the same for 1 row and for 16. A block is 32 inputs (register_inputs); a
// panel's block is loaded straight into one register. Each output is one chain over the blocks, whatever rows
// are computed with it. A line is a row of a tile register, 64 bytes. kernels/cpu/amx_registers.h has these
// sizes and the instructions; a tile of rows is register_lines (16) rows, a panel 16 outputs.
namespace clover::kernels::cpu {
namespace {

int64_t blocks_of(const LinearWork& call) {
  return (call.inputs + register_inputs - 1) / register_inputs;
}

char* packed_rows(const LinearWork& call, int64_t tile) {
  return reinterpret_cast<char*>(call.scratch) + tile * blocks_of(call) * register_bytes;
}

int64_t rows_of_tile(const LinearWork& call, int64_t tile) {
  const int64_t left = call.rows - tile * register_lines;
  return left < register_lines ? left : register_lines;
}

/// Packs tiles of rows [tiles, blocks] as tile registers, with zeros beyond the last input and, if there are
/// several tiles, beyond the last row.
void amx_pack(const LinearWork& call, int64_t tile_begin, int64_t tile_end) {
  const int64_t row_bytes = call.inputs * 2;
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    const char* x = static_cast<const char*>(call.x) + tile * register_lines * row_bytes;
    const int64_t rows = rows_of_tile(call, tile);
    const int64_t lines = call.rows > register_lines ? register_lines : rows;
    char* to = packed_rows(call, tile);
    for (int64_t block = 0; block < blocks_of(call); ++block, to += register_bytes, x += line_bytes) {
      const int64_t left = row_bytes - block * line_bytes, bytes = left < line_bytes ? left : line_bytes;
      for (int64_t row = 0; row < rows; ++row) {
        if (bytes < line_bytes) std::memset(to + row * line_bytes, 0, line_bytes);
        std::memcpy(to + row * line_bytes, x + row * row_bytes, static_cast<size_t>(bytes));
      }
      std::memset(to + rows * line_bytes, 0, static_cast<size_t>((lines - rows) * line_bytes));
    }
  }
}

/// Writes the sums of `rows` rows [rows, 16] to the outputs of a panel.
void finish_rows(const LinearWork& call, int64_t first, int64_t rows, int64_t output, const float* sums) {
  const bool full_panel = output + 16 <= call.outputs;
  if (full_panel && call.accumulate) {
    float* to = call.y + first * call.outputs + output;
    for (int64_t row = 0; row < rows; ++row, to += call.outputs)
      store_line(to, load_line<F32x16>(to) + load_line<F32x16>(sums + row * 16));
    return;
  }
  for (int64_t row = 0; row < rows; ++row)
    finish_panel(call, first + row, output, load_line<F32x16>(sums + row * 16));
}

/// Writes the sums of a tile, in tile register I of `lines` lines, to the outputs of a panel.
template <int I>
CLOVER_INLINE void finish_tile(const LinearWork& call, int64_t tile, int64_t panel, int64_t lines) {
  const int64_t first = tile * register_lines, rows = rows_of_tile(call, tile), output = panel * 16;
  const bool full_panel = output + 16 <= call.outputs && lines == rows;
  if (full_panel && !call.accumulate && call.bias == nullptr)
    return store<I>(call.y + first * call.outputs + output,
                    call.outputs * static_cast<int64_t>(sizeof(float)));
  alignas(64) float sums[register_lines * 16];
  store<I>(sums, line_bytes);
  finish_rows(call, first, rows, output, sums);
}

/// SwiGLU of a tile of rows for P panels, whose sums are in tile registers I, I + T, and so on.
template <int I, int T, int P>
CLOVER_INLINE void finish_gated_tile(const LinearWork& call, int64_t tile, int64_t panel) {
  const int64_t first = tile * register_lines, rows = rows_of_tile(call, tile);
  if constexpr (P >= 2) {
    F32x16 sums[2 * register_lines];
    unroll<2>([&](auto p)
                  CLOVER_INLINED { store<I + p * T>(reinterpret_cast<float*>(&sums[p]), 2 * line_bytes); });
    finish_gated(call, first, rows, panel * 16, sums);
  }
  if constexpr (P % 2 == 1) {
    F32x8 sums[2 * register_lines];
    store<I + (P - 1) * T>(reinterpret_cast<float*>(sums), line_bytes);
    finish_gated(call, first, rows, (panel + P - 1) * 16, sums);
  }
}

/// Computes T tiles of rows by P panels. `lines`: rows in a tile register. Registers 0 .. T * P - 1 hold
/// sums, 4 .. 3 + T rows, and the others weights in turn.
template <int P, int T, class Fetch>
CLOVER_INLINE void amx_tiles(const LinearWork& call, int64_t panel, int64_t tile, int64_t lines,
                             const Fetch& fetch) {
  static_assert(P * T <= 4 && T <= 2);
  const int64_t blocks = blocks_of(call), panel_bytes = blocks * register_bytes;
  const char* weights = static_cast<const char*>(call.panels) + panel * panel_bytes;
  const char* x = packed_rows(call, tile);
  unroll<P * T>([&](auto i) CLOVER_INLINED { zero<i>(); });
  for (int64_t block = 0; block < blocks; ++block, weights += register_bytes, x += register_bytes) {
    unroll<T>([&](auto t) CLOVER_INLINED {
      load<4 + t>(x + t * panel_bytes, line_bytes);
      fetch.rows(x + t * panel_bytes);
    });
    unroll<P>([&](auto p) CLOVER_INLINED {
      constexpr int weight = 4 + T + p % (4 - T);
      const char* at = weights + p * panel_bytes;
      fetch.weights(at, block, p);
      load<weight>(at, line_bytes);
      unroll<T>([&](auto t) CLOVER_INLINED { add_products_of_tiles<p * T + t, 4 + t, weight>(); });
    });
  }
  if (call.epilogue == Epilogue::silu_mul) {
    unroll<T>([&](auto t) CLOVER_INLINED { finish_gated_tile<t, T, P>(call, tile + t, panel); });
    return;
  }
  unroll<P>([&](auto p) CLOVER_INLINED {
    unroll<T>([&](auto t) CLOVER_INLINED { finish_tile<p * T + t>(call, tile + t, panel + p, lines); });
  });
}

CLOVER_INLINE void fetch_block(const char* at) {
  for (int64_t line = 0; line < register_lines; ++line)
    prefetch_line<CacheLevel::first>(at + line * line_bytes);
}

/// Prefetching for few rows, which wait for weights from memory: the block two blocks ahead in the same
/// panel, or (beyond its end) the first blocks of the panel `panels` panels ahead.
struct FetchWeights {
  int64_t panel_bytes, panels;
  CLOVER_INLINE void weights(const char* at, int64_t block, int /*panel*/) const {
    constexpr int64_t ahead = 2 * register_bytes;
    const bool inside = (block + 1) * register_bytes + ahead <= panel_bytes;
    fetch_block(at + (inside ? ahead : ahead + (panels - 1) * panel_bytes));
  }
  CLOVER_INLINE void rows(const char*) const {}
};

/// Prefetching for many rows: the next blocks of rows and weights from the second-level cache to the first.
/// Each pass over the tiles also prefetches a share of the next panels to the second-level cache, so that no
/// pass waits for memory.
struct FetchNext {
  const char* share;    // the part of the next panels that this pass prefetches
  int64_t block_lines;  // lines of it for each block of inputs
  CLOVER_INLINE void weights(const char* at, int64_t block, int panel) const {
    fetch_block(at + register_bytes);
    if (panel > 0) return;
    const char* from = share + block * block_lines * line_bytes;
    for (int64_t line = 0; line < block_lines; ++line)
      prefetch_line<CacheLevel::second>(from + line * line_bytes);
  }
  CLOVER_INLINE void rows(const char* at) const { fetch_block(at + register_bytes); }
};

/// One tile of rows, which is bound by memory: three panels at once.
void amx_few_rows(const LinearWork& call, int64_t begin, int64_t end, int64_t tile) {
  const int64_t rows = rows_of_tile(call, tile), panel_bytes = blocks_of(call) * register_bytes;
  configure(5, static_cast<int>(rows));
  int64_t panel = begin;
  for (; panel + 3 <= end; panel += 3) amx_tiles<3, 1>(call, panel, tile, rows, FetchWeights{panel_bytes, 3});
  for (; panel < end; ++panel) amx_tiles<1, 1>(call, panel, tile, rows, FetchWeights{panel_bytes, 1});
}

/// P panels by all tiles of rows, two tiles in each pass. `first`: no pass before has prefetched these
/// panels, so the first pass prefetches them from memory.
template <int P>
void amx_rows_of_panels(const LinearWork& call, int64_t panel, int64_t tile_begin, int64_t tile_end,
                        bool first) {
  const int64_t blocks = blocks_of(call), panel_bytes = blocks * register_bytes;
  const int64_t passes = (tile_end - tile_begin + 1) / 2;
  const FetchWeights from_memory{panel_bytes, P};
  FetchNext next{static_cast<const char*>(call.panels) + (panel + P) * panel_bytes,
                 (P * register_lines + passes - 1) / passes};
  const int64_t share_bytes = blocks * next.block_lines * line_bytes;
  for (int64_t tile = tile_begin; tile < tile_end; tile += 2, next.share += share_bytes) {
    if (tile + 1 == tile_end) {
      amx_tiles<P, 1>(call, panel, tile, register_lines, next);
    } else if (first && tile == tile_begin) {
      amx_tiles<P, 2>(call, panel, tile, register_lines, from_memory);
    } else {
      amx_tiles<P, 2>(call, panel, tile, register_lines, next);
    }
  }
}

/// Many rows, which are bound by arithmetic: two panels stay in the caches while all tiles of rows are
/// multiplied with them.
void amx_many_rows(const LinearWork& call, int64_t begin, int64_t end, int64_t tile_begin, int64_t tile_end) {
  configure(0, 0);
  const bool one_pass = tile_end - tile_begin <= 2;  // then each pass prefetches its own panels
  int64_t panel = begin;
  for (; panel + 2 <= end; panel += 2)
    amx_rows_of_panels<2>(call, panel, tile_begin, tile_end, one_pass || panel == begin);
  if (panel < end) amx_rows_of_panels<1>(call, panel, tile_begin, tile_end, one_pass || panel == begin);
}

void amx_panels(const LinearWork& call, int64_t begin, int64_t end, int64_t tile_begin, int64_t tile_end) {
  if (call.rows <= register_lines) {
    amx_few_rows(call, begin, end, tile_begin);
  } else {
    amx_many_rows(call, begin, end, tile_begin, tile_end);
  }
  release();
}

constexpr LinearLoops linear_of_tiles{register_lines, sizeof(uint16_t), 1024 << 10,
                                      never_in_place, amx_pack,         amx_panels};

}  // namespace
}  // namespace clover::kernels::cpu
