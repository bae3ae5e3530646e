#pragma once

#include <algorithm>
#include <iterator>

#include "kernels/calls.h"
#include "kernels/gpu/numbers.h"

// The arithmetic of who multiplies what in `linear`: on the device, at the launch and in tests.
namespace clover::kernels::cuda {

/// How a product's sum over k is cut: chunks of 32 inputs, four segments of chunks.  A segment is one chain
/// of multiply_add from zero, and the segments are added in order: a function of K alone, whatever kernel
/// runs.
struct KCut {
  static constexpr int segments = 4;
  int64_t chunks;

  CLOVER_BOTH explicit KCut(int64_t inputs) : chunks((inputs + 31) / 32) {}  // panels end on 32 inputs
  CLOVER_BOTH int64_t begin(int64_t segment) const { return chunks * segment / segments; }
};

/// Outputs of a panel of PackedWeight.
constexpr int panel_outputs = 16;
CLOVER_BOTH int64_t panels_of(int64_t outputs) {
  return (outputs + panel_outputs - 1) / panel_outputs;
}

/// Rows that the kernel for few takes at most: all that a block has room for, and where there are clusters
/// those that it is faster with (docs/gpu.md).
constexpr int64_t few_rows = 16, few_rows_beside_clusters = 8;

/// What plans ask of a GPU.
struct GpuRoom {
  bool roomy;     // 113 KiB of shared memory for a block
  bool clusters;  // products of four warps, at the same bits
  int64_t multiprocessors;
};

/// How the kernel that any GPU has for many rows is launched: eight warps, four over the outputs of a block
/// by two over its rows, and two blocks a multiprocessor.
struct FlatPlan {
  int panels_a_warp;  // 1 or 2
  int tiles_a_warp;   // of 8 rows: 2, 4, 6 or 8
  // Of panel_blocks the last so many: segments of k in blocks of their own, whose last one adds up.
  int64_t split_blocks = 0;

  static constexpr int64_t warps_over_rows = 2;
  int64_t rows_a_block() const { return warps_over_rows * tiles_a_warp * 8; }
  int64_t panels_a_block() const { return 8 / warps_over_rows * panels_a_warp; }
  int64_t row_blocks(const LinearCall& call) const {
    return (call.rows + rows_a_block() - 1) / rows_a_block();
  }
  int64_t panel_blocks(const LinearCall& call) const {
    return (panels_of(call.outputs) + panels_a_block() - 1) / panels_a_block();
  }
  int64_t tiles(const LinearCall& call) const { return row_blocks(call) * panel_blocks(call); }
  int64_t blocks(const LinearCall& call) const {
    return tiles(call) + (KCut::segments - 1) * row_blocks(call) * split_blocks;
  }
};

constexpr int64_t most_split_tiles = 256;
constexpr int64_t worth_splitting = 2048;  // inputs

/// As few readings of weights as there can be with 128 rows a block, then enough blocks for the GPU.  One
/// that is not roomy takes smaller tiles.
inline FlatPlan flat_plan(const LinearCall& call, const GpuRoom& room) {
  constexpr int64_t most_rows_split = 256;
  const int64_t enough_blocks = room.multiprocessors * 2 / 3;
  const int64_t most_rows = room.roomy ? 128 : 64, row_blocks = (call.rows + most_rows - 1) / most_rows;
  const int64_t rows = (call.rows + row_blocks - 1) / row_blocks;
  FlatPlan plan{room.roomy ? 2 : 1, static_cast<int>(rows + 31) / 32 * 2};
  // What those blocks have on their way is enough for the whole of it; partial sums that cross memory cost
  // more than a third that stands by.
  if (plan.tiles(call) >= enough_blocks) return plan;
  const bool split = call.inputs >= worth_splitting && call.rows <= most_rows_split;
  if (plan.tiles(call) * (split ? KCut::segments : 1) < enough_blocks) plan.panels_a_warp = 1;
  if (split && plan.tiles(call) <= most_split_tiles) plan.split_blocks = plan.panel_blocks(call);
  return plan;
}

/// How sm_90's kernel for many rows is launched: clusters of four blocks, a segment of k each, make tiles of
/// 128 outputs by some rows.  Of up to 160 rows two blocks share a multiprocessor: while one adds up, the
/// other, maybe the next kernel's, has weights on their way.
struct ClusterPlan {
  static constexpr int panels = 8, threads = 256, stage_chunks = 2;
  static constexpr int row_tile_sizes[] = {16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256};
  static constexpr int most_stages = 12;

  int rows_a_tile;  // one of row_tile_sizes
  int stages;       // of 64 inputs, in shared memory

  CLOVER_BOTH static constexpr int blocks_a_multiprocessor(int rows) { return rows <= 160 ? 2 : 1; }
  /// 16 KiB of weights, and the rows.
  CLOVER_BOTH static constexpr int stage_bytes(int rows) { return (panels * panel_outputs + rows) * 128; }
  CLOVER_BOTH static constexpr int shared_bytes(int rows, int stages) {
    return stages * (stage_bytes(rows) + 2 * 8);  // two barriers each
  }
  /// As many stages as there is room for.
  static ClusterPlan of(int rows) {
    constexpr int room = 227 << 10, half = 113 << 10;  // KiB of sm_90 that one or two blocks can have
    const int stages = (blocks_a_multiprocessor(rows) == 2 ? half : room) / shared_bytes(rows, 1);
    return {rows, std::min(stages, most_stages)};
  }

  int64_t shared_bytes() const { return shared_bytes(rows_a_tile, stages); }
  int64_t row_tiles(const LinearCall& call) const { return (call.rows + rows_a_tile - 1) / rows_a_tile; }
  int64_t output_tiles(const LinearCall& call) const {
    return (panels_of(call.outputs) + panels - 1) / panels;
  }
  int64_t blocks(const LinearCall& call) const {
    return KCut::segments * row_tiles(call) * output_tiles(call);
  }
};

/// The fewest readings of weights, then the smallest tiles that hold the rows.
inline ClusterPlan cluster_plan(const LinearCall& call) {
  constexpr int64_t most_rows = 256;
  const int64_t row_tiles = (call.rows + most_rows - 1) / most_rows,
                rows = (call.rows + row_tiles - 1) / row_tiles;
  return ClusterPlan::of(*std::find_if(std::begin(ClusterPlan::row_tile_sizes),
                                       std::end(ClusterPlan::row_tile_sizes),
                                       [&](int size) { return size >= rows; }));
}

CLOVER_BOTH bool is_aligned(const void* at, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(at) % bytes == 0;
}

/// Whether pairs of outputs are read and written at once.
CLOVER_BOTH bool in_twos(const LinearCall& call) {
  return call.epilogue != Epilogue::store || (call.outputs % 2 == 0 && is_aligned(call.y, 8));
}

/// How a product of 16-bit weights is made.
struct LinearPlan {
  enum class Kernel { few, flat, clusters } kernel = Kernel::few;
  FlatPlan flat{};
  ClusterPlan clusters{};

  static LinearPlan by(const FlatPlan& plan) { return {Kernel::flat, plan, {}}; }
  static LinearPlan by(const ClusterPlan& plan) { return {Kernel::clusters, {}, plan}; }
};

/// The kernels for many rows take 16 bytes of a row of x at a time.  Weights so few that most of the GPU
/// would stand by are read again for each 16 rows, out of the cache.
inline LinearPlan linear_plan(const LinearCall& call, const GpuRoom& room) {
  constexpr int64_t most_cached = int64_t{8} << 20;
  if (call.element == Element::fp32 || call.rows <= (room.clusters ? few_rows_beside_clusters : few_rows))
    return {};
  if (call.inputs % 8 != 0 || !is_aligned(call.x, 16)) return {};
  const auto worth = [&](int64_t blocks) {
    return 2 * blocks >= room.multiprocessors || call.outputs * call.inputs * 2 > most_cached;
  };
  if (room.clusters && in_twos(call)) {
    const ClusterPlan plan = cluster_plan(call);
    return worth(plan.blocks(call)) ? LinearPlan::by(plan) : LinearPlan{};
  }
  const FlatPlan plan = flat_plan(call, room);
  return worth(plan.blocks(call)) ? LinearPlan::by(plan) : LinearPlan{};
}

/// Whether the blocks of the kernel for few rows norm them, each for itself.  A small product takes little
/// longer than a kernel does to begin, so that pays for all rows of one tile.  A large one is bound by what
/// it reads, and for each row a block reads a quarter or more of what it does of weights through a
/// second-level cache that gives little more than twice what memory does.
constexpr int64_t most_normed_rows = 8;
static_assert(most_normed_rows <= few_rows_beside_clusters);
inline bool norms_rows(const LinearCall& call) {
  constexpr int64_t small = int64_t{8} << 20;  // bytes of weights
  constexpr int64_t most_numbers = 4 * 4096;   // that fit beside the largest rings where a block has 99 KiB
  const int64_t most_rows = call.outputs * call.inputs * 2 <= small ? most_normed_rows : 2;
  return call.element != Element::fp32 && call.rows <= most_rows && call.rows * call.inputs <= most_numbers &&
         call.inputs % 4 == 0 && is_aligned(call.x, 16) && is_aligned(call.norm, 16);
}

/// How far those lie apart in shared memory: four rows' 32 bytes in different banks.
CLOVER_BOTH int64_t normed_rows_apart(int64_t inputs) {
  constexpr int64_t all_banks = 64, quarter = 16;
  return (inputs - quarter + all_banks - 1) / all_banks * all_banks + quarter;
}

/// Where the split blocks leave their sums of a segment: fp32 [segments, rows, outputs of those blocks].
struct SplitSums {
  float* partial;
  unsigned* arrived;  // [tiles]: how many of its segments have
  int64_t rows, first_output, outputs;

  /// Of a segment: row r's of output o at [r * outputs + o].
  CLOVER_BOTH float* of(int64_t segment) const { return partial + segment * rows * outputs - first_output; }
};
inline SplitSums split_sums(const LinearCall& call, const FlatPlan& plan, float* partial, unsigned* arrived) {
  const int64_t block_outputs = plan.panels_a_block() * panel_outputs;
  return {partial, arrived, call.rows, (plan.panel_blocks(call) - plan.split_blocks) * block_outputs,
          plan.split_blocks * block_outputs};
}

/// Floats that a call needs for them.
inline int64_t split_floats(const LinearCall& call, const LinearPlan& plan) {
  if (plan.kernel != LinearPlan::Kernel::flat) return 0;
  return KCut::segments * call.rows * split_sums(call, plan.flat, nullptr, nullptr).outputs;
}

}  // namespace clover::kernels::cuda
