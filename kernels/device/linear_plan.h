#pragma once

#include "kernels/calls.h"
#include "kernels/device/numbers.h"

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

/// Rows that a block of the kernel for few takes at most.
constexpr int64_t few_rows = 16;

/// How the kernel for many rows is launched: blocks of 64 or 128 outputs by 32, 64, 96 or 128 rows.
struct ManyPlan {
  int panels_a_warp;  // 1 or 2, by four warps
  int tiles_a_warp;   // of 8 rows: 2, 4, 6 or 8, by two warps
  bool split;         // segments of k in blocks of their own, whose last one adds up

  int64_t rows_a_block() const { return int64_t{16} * tiles_a_warp; }
  int64_t panels_a_block() const { return int64_t{4} * panels_a_warp; }
  int64_t row_blocks(const LinearCall& call) const {
    return (call.rows + rows_a_block() - 1) / rows_a_block();
  }
  int64_t panel_blocks(const LinearCall& call) const {
    return (panels_of(call.outputs) + panels_a_block() - 1) / panels_a_block();
  }
  int64_t blocks(const LinearCall& call) const { return row_blocks(call) * panel_blocks(call); }
};

constexpr int64_t enough_blocks = 90, most_split_tiles = enough_blocks;

/// As few reads of weights as possible, then enough blocks for a GPU's 108 to 132 multiprocessors.  Not
/// `roomy`: a GPU whose blocks get less than 113 KiB of shared memory takes smaller tiles.
inline ManyPlan many_plan(const LinearCall& call, bool roomy) {
  constexpr int64_t worth_splitting = 2048, most_rows_split = 256;
  const int64_t most_rows = roomy ? 128 : 64, row_blocks = (call.rows + most_rows - 1) / most_rows;
  const int64_t rows = (call.rows + row_blocks - 1) / row_blocks;
  ManyPlan plan{roomy ? 2 : 1, static_cast<int>(rows + 31) / 32 * 2, false};
  // What those blocks have on their way is enough for the whole of it; partial sums that cross memory cost
  // more than a third that stands by.
  if (plan.blocks(call) >= enough_blocks) return plan;
  plan.split = call.inputs >= worth_splitting && call.rows <= most_rows_split;
  const int64_t parts = plan.split ? KCut::segments : 1;
  if (plan.blocks(call) * parts < enough_blocks) plan.panels_a_warp = 1;
  return plan;
}

/// Where sums of a segment wait to be added up: fp32 [segments, rows, whole panels of outputs].
CLOVER_BOTH int64_t partial_index(const LinearCall& call, int64_t segment, int64_t row, int64_t output) {
  return (segment * call.rows + row) * panels_of(call.outputs) * panel_outputs + output;
}

inline bool is_aligned(const void* at, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(at) % bytes == 0;
}

/// Whether the kernel for many rows runs: it takes 16 bytes of a row of x at a time.  Weights so few that
/// most of the GPU would stand by are read again for each 16 rows, out of the cache.
inline bool takes_many(const LinearCall& call, bool roomy) {
  constexpr int64_t most_cached = int64_t{8} << 20, too_few_blocks = 66;
  if (call.element == Element::fp32 || call.rows <= few_rows) return false;
  if (call.inputs % 8 != 0 || !is_aligned(call.x, 16)) return false;
  const ManyPlan plan = many_plan(call, roomy);
  const int64_t blocks = plan.blocks(call) * (plan.split ? KCut::segments : 1);
  return blocks >= too_few_blocks || call.outputs * call.inputs * 2 > most_cached;
}

/// Floats that a call needs besides its tensors.
inline int64_t linear_workspace(const LinearCall& call, bool roomy) {
  if (!takes_many(call, roomy) || !many_plan(call, roomy).split) return 0;
  return partial_index(call, KCut::segments, 0, 0);
}

}  // namespace clover::kernels::cuda
