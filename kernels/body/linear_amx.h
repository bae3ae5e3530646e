#pragma once

#include "kernels/body/amx_registers.h"
#include "kernels/body/linear_result.h"

// bf16 linear() on tile registers: 16 rows by 32 inputs against 32 inputs by 16 outputs an instruction, so a
// pass over the weights costs the same for 1 row and for 16.  A block of 32 inputs of a panel is one register
// as it lies.  Each output is one chain over blocks of inputs, whatever rows travel with it.
namespace clover::kernels::cpu {
namespace {

constexpr int64_t block_inputs = 32;

int64_t blocks_of(const LinearWork& call) {
  return (call.inputs + block_inputs - 1) / block_inputs;
}

char* packed_rows(const LinearWork& call, int64_t tile) {
  return reinterpret_cast<char*>(call.scratch) + tile * blocks_of(call) * register_bytes;
}

int64_t rows_of_tile(const LinearWork& call, int64_t tile) {
  const int64_t left = call.rows - tile * register_lines;
  return left < register_lines ? left : register_lines;
}

/// Rows a tile register at a time, zero where a block of inputs or (beside other tiles) of rows is not full.
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

/// Which lines of which weights to ask memory for while a block computes.
struct Ahead {
  int64_t bytes;  // further on in the panel, or (past its end) as far into the panel `panels` further
  int64_t panels;
  int64_t first_line, last_line;
};

/// T tiles of rows by P panels; the registers: T * P sums, T of rows, the rest of weights in turn.
template <int P, int T>
void amx_tiles(const LinearWork& call, int64_t panel, int64_t tile, Ahead ahead) {
  static_assert(P * T <= 4 && T <= 2);
  const int64_t blocks = blocks_of(call), panel_bytes = blocks * register_bytes;
  const char* weights = static_cast<const char*>(call.panels) + panel * panel_bytes;
  const char* x = packed_rows(call, tile);
  each<P * T>([&](auto i) CLOVER_INLINED { zero<i>(); });
  for (int64_t block = 0; block < blocks; ++block, weights += register_bytes, x += register_bytes) {
    each<T>([&](auto t) CLOVER_INLINED { load<4 + t>(x + t * panel_bytes); });
    const bool inside = (block + 1) * register_bytes + ahead.bytes <= panel_bytes;
    const int64_t distance = inside ? ahead.bytes : ahead.bytes + (ahead.panels - 1) * panel_bytes;
    each<P>([&](auto p) CLOVER_INLINED {
      constexpr int weight = 4 + T + p % (4 - T);
      const char* at = weights + p * panel_bytes;
      for (int64_t line = ahead.first_line; line < ahead.last_line; ++line)
        __builtin_prefetch(at + distance + line * line_bytes);
      load<weight>(at);
      each<T>([&](auto t) CLOVER_INLINED { add_products_of_tiles<p * T + t, 4 + t, weight>(); });
    });
  }
  alignas(64) float sums[register_lines * 16];
  each<P>([&](auto p) CLOVER_INLINED {
    each<T>([&](auto t) CLOVER_INLINED {
      store<p * T + t>(sums);
      const int64_t first = (tile + t) * register_lines, output = (panel + p) * 16;
      for (int64_t row = 0; row < rows_of_tile(call, tile + t); ++row) {
        finish(call, first + row, output, load8(sums + row * 16));
        finish(call, first + row, output + 8, load8(sums + row * 16 + 8));
      }
    });
  });
}

/// One tile of rows: bound by memory, three panels side by side, two blocks ahead.
void amx_few_rows(const LinearWork& call, int64_t begin, int64_t end, int64_t tile) {
  configure(5, static_cast<int>(rows_of_tile(call, tile)));
  const Ahead ahead{2 * register_bytes, 3, 0, register_lines};
  int64_t panel = begin;
  for (; panel + 3 <= end; panel += 3) amx_tiles<3, 1>(call, panel, tile, ahead);
  for (; panel < end; ++panel) amx_tiles<1, 1>(call, panel, tile, {ahead.bytes, 1, 0, register_lines});
}

/// Many rows: bound by arithmetic; two panels stay in the nearest cache while all tiles of rows pass by, each
/// pair of which fetches a part of the next panels.
void amx_many_rows(const LinearWork& call, int64_t begin, int64_t end, int64_t tile_begin, int64_t tile_end) {
  configure(0, 0);
  const int64_t panel_bytes = blocks_of(call) * register_bytes;
  for (int64_t panel = begin; panel < end; panel += 2) {
    const bool single = panel + 1 == end;
    for (int64_t tile = tile_begin; tile < tile_end; tile += 2) {
      const int64_t done = tile - tile_begin, all = tile_end - tile_begin;
      const Ahead ahead{2 * panel_bytes, 1, register_lines * done / all,
                        register_lines * (done + 2 < all ? done + 2 : all) / all};
      if (tile + 1 < tile_end) {
        single ? amx_tiles<1, 2>(call, panel, tile, ahead) : amx_tiles<2, 2>(call, panel, tile, ahead);
      } else {
        single ? amx_tiles<1, 1>(call, panel, tile, ahead) : amx_tiles<2, 1>(call, panel, tile, ahead);
      }
    }
  }
}

void amx_panels(const LinearWork& call, int64_t begin, int64_t end, int64_t tile_begin, int64_t tile_end) {
  if (call.rows <= register_lines) {
    amx_few_rows(call, begin, end, tile_begin);
  } else {
    amx_many_rows(call, begin, end, tile_begin, tile_end);
  }
  release();
}

}  // namespace
}  // namespace clover::kernels::cpu
