#pragma once

#include "kernels/linear/linear_call.h"
#include "kernels/op/host_device.h"

// The loops of products on a CPU, compiled once for each instruction family.
namespace clover::kernels::cpu {

/// A product whose rows of x are cut into ceil(rows / LinearLoops::tile_rows) tiles and repacked, or read in
/// place.
struct LinearWork : LinearCall {
  float* scratch;  // the tiles, the last one at full height: linear_scratch(rows of all tiles, inputs)
                   // floats, best on a cache line; unused where rows are read in place
};

/// Floats of LinearWork::scratch.
CLOVER_HOST_DEVICE constexpr int64_t linear_scratch(int64_t rows, int64_t inputs) {
  return rows * ((inputs + 31) / 32 * 32);
}

struct LinearLoops {
  int64_t tile_rows;
  int64_t input_bytes;  // of an input in a tile
  int64_t block_bytes;  // of the rows that are multiplied at a time, which every panel passes: a second-level
                        // cache should hold them beside weights
  /// Whether `panels` reads the rows in place.
  bool (*in_place)(const LinearCall&);
  /// Repacks tiles [begin, end) of x into scratch, for `panels`.
  void (*pack)(const LinearWork&, int64_t tile_begin, int64_t tile_end);
  /// Computes the outputs of panels [begin, end) for tiles [tile_begin, tile_end), and the product of
  /// silu_mul.
  void (*panels)(const LinearWork&, int64_t begin, int64_t end, int64_t tile_begin, int64_t tile_end);
};

/// Those for weights in bf16.
struct Bf16LinearLoops : LinearLoops {
  static constexpr bool own_amx_loops = true;  // linear_amx.cc
};

struct RopeLoops {
  /// Rotates and stores rows [begin, end) of queries, keys and values; `sums` is row `begin`.
  void (*rope)(const float* sums, const RopeCall&, int64_t begin, int64_t end);
};

}  // namespace clover::kernels::cpu
