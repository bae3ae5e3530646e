#pragma once

#include <algorithm>
#include <iterator>

#include "kernels/linear/linear_call.h"
#include "kernels/weights/panels.h"

// Which block of a GPU computes which part of a product: arithmetic that kernels, launches and tests share.
namespace clover::kernels::cuda {

/// How a product's sum over k is cut: into chunks of 32 inputs, and those into four segments. A segment is
/// one chain of multiply_add from zero, and segments are added in order. The cut depends on K alone, whatever
/// kernel runs.
struct KCut {
  static constexpr int segments = 4;
  int64_t chunks;

  CLOVER_HOST_DEVICE explicit KCut(int64_t inputs) : chunks((inputs + 31) / 32) {}  // panels end on 32 inputs
  CLOVER_HOST_DEVICE int64_t begin(int64_t segment) const { return chunks * segment / segments; }
};

/// The most rows that the kernel for few rows takes: as many as fit in a block, or, on a GPU with clusters,
/// those for which it is faster than them (docs/gpu.md).
constexpr int64_t few_rows = 16, few_rows_beside_clusters = 8;

/// What plans need to know of a GPU.
struct GpuLimits {
  bool large_shared_memory;  // 113 KiB for a block
  bool clusters;             // products of four warps, at the same bits
  int64_t multiprocessors;
};

/// Launch of the kernel for many rows that every GPU can run: eight warps a block, four over its outputs by
/// two over its rows, and two blocks a multiprocessor.
struct FlatPlan {
  int panels_a_warp;  // 1 or 2
  int tiles_a_warp;   // of 8 rows: 2, 4, 6 or 8
  // The last so many of panel_blocks are computed by one block for each segment of k; the last of these to
  // finish adds the segments.
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

/// Weights are read as few times as 128 rows a block allow, then there are as many blocks as the GPU needs to
/// be busy. A GPU without large_shared_memory takes smaller tiles.
inline FlatPlan flat_plan(const LinearCall& call, const GpuLimits& room) {
  constexpr int64_t most_rows_split = 256;
  const int64_t enough_blocks = room.multiprocessors * 2 / 3;
  const int64_t most_rows = room.large_shared_memory ? 128 : 64,
                row_blocks = (call.rows + most_rows - 1) / most_rows;
  const int64_t rows = (call.rows + row_blocks - 1) / row_blocks;
  FlatPlan plan{room.large_shared_memory ? 2 : 1, static_cast<int>(rows + 31) / 32 * 2};
  // That many blocks load enough at a time to use all memory bandwidth; partial sums through memory cost more
  // than a third of the multiprocessors that stay idle.
  if (plan.tiles(call) >= enough_blocks) return plan;
  const bool split = call.inputs >= worth_splitting && call.rows <= most_rows_split;
  if (plan.tiles(call) * (split ? KCut::segments : 1) < enough_blocks) plan.panels_a_warp = 1;
  if (split && plan.tiles(call) <= most_split_tiles) plan.split_blocks = plan.panel_blocks(call);
  return plan;
}

/// Launch of sm_90's kernel for many rows: a cluster of four blocks, one for each segment of k, computes a
/// tile of 128 outputs by some rows. Up to 160 rows two blocks share a multiprocessor: while one adds up, the
/// other one, perhaps of the next kernel, loads weights.
struct ClusterPlan {
  static constexpr int panels = 8, threads = 256, stage_chunks = 2;
  static constexpr int row_tile_sizes[] = {16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256};
  static constexpr int most_stages = 12;

  int rows_a_tile;  // one of row_tile_sizes
  int stages;       // of 64 inputs, in shared memory

  CLOVER_HOST_DEVICE static constexpr int blocks_a_multiprocessor(int rows) { return rows <= 160 ? 2 : 1; }
  /// Bytes of a stage: 16 KiB of weights, and the rows.
  CLOVER_HOST_DEVICE static constexpr int stage_bytes(int rows) {
    return (panels * panel_outputs + rows) * 128;
  }
  CLOVER_HOST_DEVICE static constexpr int shared_bytes(int rows, int stages) {
    return stages * (stage_bytes(rows) + 2 * 8);  // two barriers each
  }
  /// The plan with as many stages as fit in shared memory.
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

/// Weights are read as few times as possible; then the smallest tile that holds the rows.
inline ClusterPlan cluster_plan(const LinearCall& call) {
  constexpr int64_t most_rows = 256;
  const int64_t row_tiles = (call.rows + most_rows - 1) / most_rows,
                rows = (call.rows + row_tiles - 1) / row_tiles;
  return ClusterPlan::of(*std::find_if(std::begin(ClusterPlan::row_tile_sizes),
                                       std::end(ClusterPlan::row_tile_sizes),
                                       [&](int size) { return size >= rows; }));
}

CLOVER_HOST_DEVICE bool is_aligned(const void* at, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(at) % bytes == 0;
}

/// Whether outputs are read and written in aligned pairs.
CLOVER_HOST_DEVICE bool in_twos(const LinearCall& call) {
  return call.epilogue != Epilogue::store || (call.outputs % 2 == 0 && is_aligned(call.y, 8));
}

/// Which kernel computes a product of 16-bit weights, and its launch.
struct LinearPlan {
  enum class Kernel { few, flat, clusters } kernel = Kernel::few;
  FlatPlan flat{};
  ClusterPlan clusters{};

  static LinearPlan by(const FlatPlan& plan) { return {Kernel::flat, plan, {}}; }
  static LinearPlan by(const ClusterPlan& plan) { return {Kernel::clusters, {}, plan}; }
};

/// The kernels for many rows load 16 bytes of a row of x at a time. Where weights are so few that most
/// multiprocessors would stay idle, the kernel for few rows reads them again from the cache for each 16 rows.
inline LinearPlan linear_plan(const LinearCall& call, const GpuLimits& room) {
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

/// Whether RMSNorm of the rows is done within the kernel for few rows, by each block for itself. For a small
/// product, which takes little longer than a launch, that pays for up to a tile of rows. A large one is bound
/// by what it reads, and each row adds a quarter or more of its weights' bytes to the traffic of the second-
/// level cache, which has little more than twice the bandwidth of memory.
constexpr int64_t most_normed_rows = 8;
static_assert(most_normed_rows <= few_rows_beside_clusters);
inline bool norms_rows(const LinearCall& call) {
  constexpr int64_t small = int64_t{8} << 20;  // bytes of weights
  constexpr int64_t most_numbers = 4 * 4096;   // that fit beside the largest rings where a block has 99 KiB
  const int64_t most_rows = call.outputs * call.inputs * 2 <= small ? most_normed_rows : 2;
  return call.element != Element::fp32 && call.rows <= most_rows && call.rows * call.inputs <= most_numbers &&
         call.inputs % 4 == 0 && is_aligned(call.x, 16) && is_aligned(call.norm, 16);
}

/// Elements between normed rows in shared memory, such that four rows' 32 bytes are in different banks.
CLOVER_HOST_DEVICE int64_t normed_rows_apart(int64_t inputs) {
  constexpr int64_t all_banks = 64, quarter = 16;
  return (inputs - quarter + all_banks - 1) / all_banks * all_banks + quarter;
}

/// Where split blocks leave their sums: fp32 [segments, rows, outputs of those blocks].
struct SplitSums {
  float* partial;
  unsigned* arrived;  // [tiles]: how many of its segments have
  int64_t rows, first_output, outputs;

  /// Sums of a segment: row r's of output o is at [r * outputs + o].
  CLOVER_HOST_DEVICE float* of(int64_t segment) const {
    return partial + segment * rows * outputs - first_output;
  }
};
inline SplitSums split_sums(const LinearCall& call, const FlatPlan& plan, float* partial, unsigned* arrived) {
  const int64_t block_outputs = plan.panels_a_block() * panel_outputs;
  return {partial, arrived, call.rows, (plan.panel_blocks(call) - plan.split_blocks) * block_outputs,
          plan.split_blocks * block_outputs};
}

/// Floats that a call needs for split sums.
inline int64_t split_floats(const LinearCall& call, const LinearPlan& plan) {
  if (plan.kernel != LinearPlan::Kernel::flat) return 0;
  return KCut::segments * call.rows * split_sums(call, plan.flat, nullptr, nullptr).outputs;
}

}  // namespace clover::kernels::cuda
