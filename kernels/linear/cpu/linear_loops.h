#pragma once

#include "kernels/linear/linear_call.h"
#include "kernels/op/host_device.h"

// The loops of products on a CPU, compiled once for each instruction family.
namespace clover::kernels::cpu {

/// A product whose rows of x are cut into ceil(rows / LinearLoops::tile_rows) tiles, which are repacked or
/// read in place.
struct LinearWork : LinearCall {
  // The packed tiles: linear_scratch(tiles * tile_rows, inputs) floats, preferably aligned to a cache line.
  // Not used if rows are read in place.
  float* scratch;
};

/// Floats of LinearWork::scratch for `rows` rows; inputs are padded to 32.
CLOVER_HOST_DEVICE constexpr int64_t linear_scratch(int64_t rows, int64_t inputs) {
  return rows * ((inputs + 31) / 32 * 32);
}

struct LinearLoops {
  int64_t tile_rows;    // the most rows of a tile
  int64_t input_bytes;  // bytes of an input in a packed tile
  // Bytes of the packed rows that are multiplied at a time. Every panel of weights is multiplied with all of
  // them, so they should stay in the second-level cache.
  int64_t block_bytes;
  /// Whether `panels` reads the rows in place.
  bool (*in_place)(const LinearCall&);
  /// Repacks tiles [begin, end) of x into scratch, for `panels`.
  void (*pack)(const LinearWork&, int64_t tile_begin, int64_t tile_end);
  /// Computes panels [begin, end) for tiles [tile_begin, tile_end) and writes call.y, or call.product if the
  /// epilogue is silu_mul.
  void (*panels)(const LinearWork&, int64_t begin, int64_t end, int64_t tile_begin, int64_t tile_end);
};

/// The loops for bf16 weights.
struct Bf16LinearLoops : LinearLoops {
  static constexpr bool own_amx_loops = true;  // linear_amx.cc
};

struct RopeLoops {
  /// Rotates and stores queries, keys and values of rows [begin, end) of the call; `sums` points to row
  /// `begin`.
  void (*rope)(const float* sums, const RopeCall&, int64_t begin, int64_t end);
};

}  // namespace clover::kernels::cpu
