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

/// What plans ask of a GPU.
struct GpuRoom {
  bool roomy;  // 113 KiB of shared memory for each of two blocks a multiprocessor
  bool tall;   // 224 KiB for one
  int64_t multiprocessors;
};

/// How the kernel for many rows is launched: eight warps side by side over the outputs of a block and over
/// its rows.
struct ManyPlan {
  bool tall;  // 128 outputs by 192 or 256 rows, a block a multiprocessor; else 64 or 128 outputs by 32, 64,
              // 96 or 128 rows, and two blocks
  int panels_a_warp;         // 1 or 2, by four warps; of a tall one 4, by two
  int tiles_a_warp;          // of 8 rows: 2, 4, 6 or 8, by the other warps
  int64_t split_blocks = 0;  // of panel_blocks the last so many: segments of k in blocks of their own, whose
                             // last one adds up

  int64_t warps_over_rows() const { return tall ? 4 : 2; }
  int64_t rows_a_block() const { return warps_over_rows() * tiles_a_warp * 8; }
  int64_t panels_a_block() const { return 8 / warps_over_rows() * panels_a_warp; }
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

constexpr int64_t enough_blocks = 90, most_split_tiles = 256;
constexpr int64_t worth_splitting = 2048;  // inputs

/// Of tall blocks, one a multiprocessor and bound by tensor cores: those of the last round, where splitting
/// them ends it sooner.  In quarters of a block's time, of which adding up takes about one.
inline int64_t tall_blocks_to_split(const ManyPlan& plan, const LinearCall& call, int64_t multiprocessors) {
  const int64_t row_blocks = plan.row_blocks(call), tiles = plan.tiles(call),
                rounds = tiles / multiprocessors;
  const int64_t rest = plan.panel_blocks(call) - rounds * multiprocessors / row_blocks,
                rest_tiles = rest * row_blocks;
  constexpr int64_t quarters = KCut::segments, adding_up = 1;
  const int64_t split = (rest_tiles * quarters + multiprocessors - 1) / multiprocessors + adding_up;
  return rest_tiles > 0 && rest_tiles <= most_split_tiles && split < quarters ? rest : 0;
}

/// Behind 128 rows: as few readings of weights and inputs as there can be.
inline ManyPlan tall_plan(const LinearCall& call, const GpuRoom& room) {
  constexpr int64_t most_rows = 256, most_rows_split = 512;
  const int64_t row_blocks = (call.rows + most_rows - 1) / most_rows,
                rows = (call.rows + row_blocks - 1) / row_blocks;
  ManyPlan plan{true, 4, rows <= 192 ? 6 : 8};
  if (call.inputs >= worth_splitting && call.rows <= most_rows_split)
    plan.split_blocks = tall_blocks_to_split(plan, call, room.multiprocessors);
  return plan;
}

/// As few readings of weights as there can be, then enough blocks for a GPU's 108 to 132 multiprocessors.  A
/// GPU that is not roomy takes smaller tiles.
inline ManyPlan many_plan(const LinearCall& call, const GpuRoom& room) {
  constexpr int64_t most_rows_split = 256;
  if (call.rows > 128 && room.tall) {
    const ManyPlan plan = tall_plan(call, room);
    if (3 * plan.blocks(call) >= 2 * room.multiprocessors) return plan;
  }
  const int64_t most_rows = room.roomy ? 128 : 64, row_blocks = (call.rows + most_rows - 1) / most_rows;
  const int64_t rows = (call.rows + row_blocks - 1) / row_blocks;
  ManyPlan plan{false, room.roomy ? 2 : 1, static_cast<int>(rows + 31) / 32 * 2};
  // What those blocks have on their way is enough for the whole of it; partial sums that cross memory cost
  // more than a third that stands by.
  if (plan.tiles(call) >= enough_blocks) return plan;
  const bool split = call.inputs >= worth_splitting && call.rows <= most_rows_split;
  if (plan.tiles(call) * (split ? KCut::segments : 1) < enough_blocks) plan.panels_a_warp = 1;
  if (split) plan.split_blocks = plan.panel_blocks(call);
  return plan;
}

inline bool is_aligned(const void* at, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(at) % bytes == 0;
}

/// How a product of 16-bit weights is made: by the kernel for few rows or by that for many.
struct LinearPlan {
  bool many = false;
  ManyPlan shape{};
};

/// The kernel for many rows takes 16 bytes of a row of x at a time.  Weights so few that most of the GPU
/// would stand by are read again for each 16 rows, out of the cache.
inline LinearPlan linear_plan(const LinearCall& call, const GpuRoom& room) {
  constexpr int64_t most_cached = int64_t{8} << 20;
  if (call.element == Element::fp32 || call.rows <= few_rows) return {};
  if (call.inputs % 8 != 0 || !is_aligned(call.x, 16)) return {};
  const ManyPlan shape = many_plan(call, room);
  const bool many =
      2 * shape.blocks(call) >= room.multiprocessors || call.outputs * call.inputs * 2 > most_cached;
  return {many, shape};
}

/// Where the split blocks leave their sums of a segment: fp32 [segments, rows, outputs of those blocks].
struct SplitSums {
  float* partial;
  unsigned* arrived;  // [tiles]: how many of its segments have
  int64_t rows, first_output, outputs;

  /// Of a segment: row r's of output o at [r * outputs + o].
  CLOVER_BOTH float* of(int64_t segment) const { return partial + segment * rows * outputs - first_output; }
};
inline SplitSums split_sums(const LinearCall& call, const ManyPlan& plan, float* partial, unsigned* arrived) {
  const int64_t block_outputs = plan.panels_a_block() * panel_outputs;
  return {partial, arrived, call.rows, (plan.panel_blocks(call) - plan.split_blocks) * block_outputs,
          plan.split_blocks * block_outputs};
}

/// Floats that a call needs for them.
inline int64_t split_floats(const LinearCall& call, const LinearPlan& plan) {
  return plan.many ? KCut::segments * call.rows * split_sums(call, plan.shape, nullptr, nullptr).outputs : 0;
}

}  // namespace clover::kernels::cuda
