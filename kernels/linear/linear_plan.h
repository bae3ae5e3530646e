#pragma once

#include <algorithm>
#include <iterator>

#include "kernels/linear/linear_call.h"
#include "kernels/weights/panels.h"

// Which thread block of a GPU computes which part of a product: arithmetic that kernels, launches and tests
// share. There are three kernels for 16-bit weights:
//   few       linear_few.cuh, for few rows: one thread block for each panel of 16 outputs
//   flat      linear_many.cuh, for many rows on every GPU: mma.sync
//   clusters  linear_clusters.cuh, for many rows on sm_90: wgmma
// A panel is 16 outputs (kernels/weights/panels.h). A stage is a part of a ring in shared memory, to which
// weights and rows are copied before they are multiplied.
namespace clover::kernels::cuda {

/// How the sum over the K inputs is cut: into chunks of 32 inputs, and the chunks into four segments. A
/// segment is one chain of multiply_add that begins with zero, and segments are added in order. The cut
/// depends on K alone, so that all kernels yield the same bits.
struct KCut {
  static constexpr int segments = 4;
  int64_t chunks;

  CLOVER_HOST_DEVICE explicit KCut(int64_t inputs)
      : chunks((inputs + 31) / 32) {}  // panels are padded to 32 inputs
  /// First chunk of a segment.
  CLOVER_HOST_DEVICE int64_t begin(int64_t segment) const { return chunks * segment / segments; }
};

/// The most rows for the kernel `few`: the rows of a thread block, or, if the GPU has clusters, the rows for
/// which it is faster than these (docs/gpu.md).
constexpr int64_t max_few_rows = 16, max_few_rows_with_clusters = 8;

/// What plans depend on.
struct GpuLimits {
  bool large_shared_memory;  // a thread block can have 113 KiB
  bool clusters;             // the kernel `clusters` may be used
  int64_t multiprocessors;
};

/// Launch of the kernel `flat`: thread blocks of eight warps, four over the outputs by two over the rows of
/// the block tile; two thread blocks share a multiprocessor.
struct FlatPlan {
  int panels_per_warp;  // 1 or 2
  int tiles_per_warp;   // tiles of 8 rows: 2, 4, 6 or 8
  // For the last `split_blocks` of panel_blocks, four thread blocks compute one segment of k each; the last
  // one to finish adds the segments.
  int64_t split_blocks = 0;

  static constexpr int64_t warps_over_rows = 2;
  int64_t rows_per_block() const { return warps_over_rows * tiles_per_warp * 8; }
  int64_t panels_per_block() const { return 8 / warps_over_rows * panels_per_warp; }
  int64_t row_blocks(const LinearCall& call) const {
    return (call.rows + rows_per_block() - 1) / rows_per_block();
  }
  int64_t panel_blocks(const LinearCall& call) const {
    return (panels_of(call.outputs) + panels_per_block() - 1) / panels_per_block();
  }
  int64_t block_tiles(const LinearCall& call) const { return row_blocks(call) * panel_blocks(call); }
  int64_t blocks(const LinearCall& call) const {
    return block_tiles(call) + (KCut::segments - 1) * row_blocks(call) * split_blocks;
  }
};

constexpr int64_t max_split_tiles = 256;    // block tiles whose sums are split
constexpr int64_t min_split_inputs = 2048;  // inputs of a product whose sums are split

/// The plan that reads weights as rarely as possible (a block takes at most 128 rows, or 64 without
/// large_shared_memory), then has enough thread blocks to keep the GPU busy.
inline FlatPlan flat_plan(const LinearCall& call, const GpuLimits& limits) {
  constexpr int64_t max_split_rows = 256;
  const int64_t enough_blocks = limits.multiprocessors * 2 / 3;
  const int64_t max_rows = limits.large_shared_memory ? 128 : 64,
                row_blocks = (call.rows + max_rows - 1) / max_rows;
  const int64_t rows = (call.rows + row_blocks - 1) / row_blocks;
  FlatPlan plan{limits.large_shared_memory ? 2 : 1, static_cast<int>(rows + 31) / 32 * 2};
  // This many blocks use all memory bandwidth. Splitting them costs more than it gains from the third of the
  // multiprocessors that are idle, because partial sums go through memory.
  if (plan.block_tiles(call) >= enough_blocks) return plan;
  const bool split = call.inputs >= min_split_inputs && call.rows <= max_split_rows;
  if (plan.block_tiles(call) * (split ? KCut::segments : 1) < enough_blocks) plan.panels_per_warp = 1;
  if (split && plan.block_tiles(call) <= max_split_tiles) plan.split_blocks = plan.panel_blocks(call);
  return plan;
}

/// Launch of the kernel `clusters`: a cluster of four thread blocks, one for each segment of k, computes a
/// cluster tile of 128 outputs by rows_per_tile rows. Up to 160 rows two blocks share a multiprocessor: while
/// one adds up segments, the other one, perhaps of the next kernel, loads weights.
struct ClusterPlan {
  static constexpr int panels = 8, threads = 256, stage_chunks = 2;
  static constexpr int row_tile_sizes[] = {16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256};
  static constexpr int max_stages = 12;

  int rows_per_tile;  // one of row_tile_sizes
  int stages;         // of stage_chunks chunks (64 inputs), in shared memory

  CLOVER_HOST_DEVICE static constexpr int blocks_per_multiprocessor(int rows) { return rows <= 160 ? 2 : 1; }
  /// Bytes of a stage: 16 KiB of weights, and the rows.
  CLOVER_HOST_DEVICE static constexpr int stage_bytes(int rows) {
    return (panels * panel_outputs + rows) * 128;
  }
  CLOVER_HOST_DEVICE static constexpr int shared_bytes(int rows, int stages) {
    return stages * (stage_bytes(rows) + 2 * 8);  // two barriers each
  }
  /// The plan with as many stages as fit in shared memory.
  static ClusterPlan of(int rows) {
    constexpr int whole = 227 << 10, half = 113 << 10;  // bytes for each of one or two blocks of sm_90
    const int stages = (blocks_per_multiprocessor(rows) == 2 ? half : whole) / shared_bytes(rows, 1);
    return {rows, std::min(stages, max_stages)};
  }

  int64_t shared_bytes() const { return shared_bytes(rows_per_tile, stages); }
  int64_t row_tiles(const LinearCall& call) const { return (call.rows + rows_per_tile - 1) / rows_per_tile; }
  int64_t output_tiles(const LinearCall& call) const {
    return (panels_of(call.outputs) + panels - 1) / panels;
  }
  int64_t blocks(const LinearCall& call) const {
    return KCut::segments * row_tiles(call) * output_tiles(call);
  }
};

/// The plan that reads weights as rarely as possible, with the smallest tile that holds the rows.
inline ClusterPlan cluster_plan(const LinearCall& call) {
  constexpr int64_t max_rows = 256;
  const int64_t row_tiles = (call.rows + max_rows - 1) / max_rows,
                rows = (call.rows + row_tiles - 1) / row_tiles;
  return ClusterPlan::of(*std::find_if(std::begin(ClusterPlan::row_tile_sizes),
                                       std::end(ClusterPlan::row_tile_sizes),
                                       [&](int size) { return size >= rows; }));
}

CLOVER_HOST_DEVICE bool is_aligned(const void* at, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(at) % bytes == 0;
}

/// Whether the epilogue can read and write outputs in aligned pairs.
CLOVER_HOST_DEVICE bool in_aligned_pairs(const LinearCall& call) {
  return call.epilogue != Epilogue::store || (call.outputs % 2 == 0 && is_aligned(call.y, 8));
}

/// Which kernel computes a product of 16-bit weights, and the plan of its launch.
struct LinearPlan {
  enum class Kernel { few, flat, clusters } kernel = Kernel::few;
  FlatPlan flat{};
  ClusterPlan clusters{};

  static LinearPlan by(const FlatPlan& plan) { return {Kernel::flat, plan, {}}; }
  static LinearPlan by(const ClusterPlan& plan) { return {Kernel::clusters, {}, plan}; }
};

/// Chooses the kernel. Those for many rows load 16 aligned bytes of a row of x at a time. If they would leave
/// most multiprocessors idle and the weights fit in the second-level cache, `few` computes many rows too.
inline LinearPlan linear_plan(const LinearCall& call, const GpuLimits& limits) {
  constexpr int64_t max_cached_bytes = int64_t{8} << 20;
  if (call.element == Element::fp32 ||
      call.rows <= (limits.clusters ? max_few_rows_with_clusters : max_few_rows))
    return {};
  if (call.inputs % 8 != 0 || !is_aligned(call.x, 16)) return {};
  const auto worthwhile = [&](int64_t blocks) {
    return 2 * blocks >= limits.multiprocessors || call.outputs * call.inputs * 2 > max_cached_bytes;
  };
  if (limits.clusters && in_aligned_pairs(call)) {
    const ClusterPlan plan = cluster_plan(call);
    return worthwhile(plan.blocks(call)) ? LinearPlan::by(plan) : LinearPlan{};
  }
  const FlatPlan plan = flat_plan(call, limits);
  return worthwhile(plan.blocks(call)) ? LinearPlan::by(plan) : LinearPlan{};
}

/// Whether each thread block of the kernel `few` applies the RMSNorm to all rows itself, instead of a kernel
/// before it. For a small product, which takes little longer than a launch, that pays for up to 8 rows. A
/// large one is bound by memory bandwidth, and each row adds a quarter or more of the weights' bytes to the
/// traffic of the second-level cache, which has little more than twice that bandwidth.
constexpr int64_t max_normed_rows = 8;
static_assert(max_normed_rows <= max_few_rows_with_clusters);
inline bool norms_in_kernel(const LinearCall& call) {
  constexpr int64_t small = int64_t{8} << 20;  // bytes of weights
  // Elements of x that fit in the 99 KiB of a block together with the largest rings.
  constexpr int64_t max_normed_numbers = 4 * 4096;
  const int64_t max_rows = call.outputs * call.inputs * 2 <= small ? max_normed_rows : 2;
  return call.element != Element::fp32 && call.rows <= max_rows &&
         call.rows * call.inputs <= max_normed_numbers && call.inputs % 4 == 0 && is_aligned(call.x, 16) &&
         is_aligned(call.norm, 16);
}

/// Elements from one normed row to the next in shared memory: 32 bytes of each of four successive rows are in
/// different banks.
CLOVER_HOST_DEVICE int64_t normed_row_stride(int64_t inputs) {
  constexpr int64_t all_banks = 64, quarter = 16;  // elements: 128 bytes, the width of all banks, and 32
  return (inputs - quarter + all_banks - 1) / all_banks * all_banks + quarter;
}

/// Where the thread blocks of split sums (FlatPlan::split_blocks) write the sums of their segments.
struct SplitSums {
  float* partial;                 // [segments, rows, outputs]
  unsigned* arrived;              // [block tiles] how many segments of each have been written
  int64_t rows;                   // of the call
  int64_t first_output, outputs;  // those whose sums are split

  /// Sums of a segment: that of row r and output o is element r * outputs + o.
  CLOVER_HOST_DEVICE float* of(int64_t segment) const {
    return partial + segment * rows * outputs - first_output;
  }
};
inline SplitSums split_sums(const LinearCall& call, const FlatPlan& plan, float* partial, unsigned* arrived) {
  const int64_t block_outputs = plan.panels_per_block() * panel_outputs;
  return {partial, arrived, call.rows, (plan.panel_blocks(call) - plan.split_blocks) * block_outputs,
          plan.split_blocks * block_outputs};
}

/// Floats that a call needs for split sums.
inline int64_t split_floats(const LinearCall& call, const LinearPlan& plan) {
  if (plan.kernel != LinearPlan::Kernel::flat) return 0;
  return KCut::segments * call.rows * split_sums(call, plan.flat, nullptr, nullptr).outputs;
}

}  // namespace clover::kernels::cuda
