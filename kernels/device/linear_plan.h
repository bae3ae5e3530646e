#pragma once

#include <algorithm>
#include <iterator>

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

/// Tiles of eight rows that a tall block may have.
constexpr int tall_tiles[] = {20, 24, 30, 32};

/// What plans ask of a GPU.
struct GpuRoom {
  bool roomy;  // 113 KiB of shared memory for a block
  bool tall;   // products of four warps, at the same bits
  int64_t multiprocessors;
};

/// How the kernel for many rows is launched: eight warps side by side over the outputs of a block and over
/// its rows.
struct ManyPlan {
  bool tall;          // 128 outputs by all tiles of tall_tiles, a block a multiprocessor; else 64 or 128
                      // outputs by 32, 64, 96 or 128 rows, and two blocks
  int panels_a_warp;  // 1 or 2, by four warps; of a tall one 1, by eight
  int tiles_a_warp;   // of 8 rows: 2, 4, 6 or 8, by the other warps; of a tall one all
  // Of panel_blocks the last so many: segments of k in blocks of their own, whose last one adds up.
  int64_t split_blocks = 0;

  int64_t warps_over_rows() const { return tall ? 1 : 2; }
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

constexpr int64_t most_split_tiles = 256;
constexpr int64_t worth_splitting = 2048;  // inputs

/// What passes through the second-level cache where sums of so many tiles are split.
inline int64_t adding_up_cycles(const ManyPlan& plan, int64_t tiles) {
  constexpr int64_t in_any_case = 5000, a_tall_tile = 300;
  return in_any_case + a_tall_tile * tiles / (plan.tall ? 1 : 2);
}

/// Cycles of all rounds of tall blocks, one a multiprocessor, whose last round is split where that ends it
/// sooner.  What bounds a chunk is not its products (16 cycles a tile) but 8 KiB of weights and 512 bytes a
/// tile of inputs through a second-level cache that gives each multiprocessor 32 bytes a cycle.
inline int64_t tall_cycles(ManyPlan& plan, const LinearCall& call, const GpuRoom& room) {
  constexpr int64_t totals = 6000;  // of 120 KiB three times to shared memory, three times back
  const int64_t row_blocks = plan.row_blocks(call), rounds = plan.tiles(call) / room.multiprocessors;
  const int64_t rest = plan.panel_blocks(call) - rounds * room.multiprocessors / row_blocks,
                tiles = rest * row_blocks;
  const int64_t block = totals + KCut(call.inputs).chunks * (256 + 16 * plan.tiles_a_warp);
  if (tiles == 0) return rounds * block;
  const int64_t shares = (tiles * KCut::segments + room.multiprocessors - 1) / room.multiprocessors;
  const int64_t split = shares * block / KCut::segments + adding_up_cycles(plan, tiles);
  const bool splits = call.inputs >= worth_splitting && tiles <= most_split_tiles && split < block;
  if (splits) plan.split_blocks = rest;
  return rounds * block + (splits ? split : block);
}

/// The same of blocks of up to 128 rows, two a multiprocessor, of which one alone takes six tenths of the
/// time.
inline int64_t flat_cycles(const ManyPlan& plan, const LinearCall& call, const GpuRoom& room) {
  const int64_t places = 2 * room.multiprocessors, blocks = plan.blocks(call), rest = blocks % places;
  const int64_t chunks = KCut(call.inputs).chunks / (plan.split_blocks > 0 ? KCut::segments : 1);
  const int64_t two = chunks * (360 + 80 * plan.tiles_a_warp);
  const int64_t last = rest > room.multiprocessors ? two : rest > 0 ? two * 6 / 10 : 0;
  return blocks / places * two + last +
         (plan.split_blocks > 0 ? adding_up_cycles(plan, plan.tiles(call)) : 0);
}

/// As few readings of weights as there can be with 128 rows a block, then enough blocks for the GPU.  One
/// that is not roomy takes smaller tiles.
inline ManyPlan flat_plan(const LinearCall& call, const GpuRoom& room) {
  constexpr int64_t most_rows_split = 256;
  const int64_t enough_blocks = room.multiprocessors * 2 / 3;
  const int64_t most_rows = room.roomy ? 128 : 64, row_blocks = (call.rows + most_rows - 1) / most_rows;
  const int64_t rows = (call.rows + row_blocks - 1) / row_blocks;
  ManyPlan plan{false, room.roomy ? 2 : 1, static_cast<int>(rows + 31) / 32 * 2};
  // What those blocks have on their way is enough for the whole of it; partial sums that cross memory cost
  // more than a third that stands by.
  if (plan.tiles(call) >= enough_blocks) return plan;
  const bool split = call.inputs >= worth_splitting && call.rows <= most_rows_split;
  if (plan.tiles(call) * (split ? KCut::segments : 1) < enough_blocks) plan.panels_a_warp = 1;
  if (split && plan.tiles(call) <= most_split_tiles) plan.split_blocks = plan.panel_blocks(call);
  return plan;
}

/// Behind 128 rows tall blocks, which read weights and inputs less often, unless those of their rows that are
/// not there or a last round of few take longer.
inline ManyPlan many_plan(const LinearCall& call, const GpuRoom& room) {
  const ManyPlan flat = flat_plan(call, room);
  if (call.rows <= 128 || !room.tall) return flat;
  constexpr int64_t most_rows = 256;
  const int64_t row_blocks = (call.rows + most_rows - 1) / most_rows,
                rows = (call.rows + row_blocks - 1) / row_blocks;
  ManyPlan tall{true, 1, *std::find_if(std::begin(tall_tiles), std::end(tall_tiles), [&](int tiles) {
                  return 8 * tiles >= rows;
                })};
  return tall_cycles(tall, call, room) <= flat_cycles(flat, call, room) ? tall : flat;
}

CLOVER_BOTH bool is_aligned(const void* at, uintptr_t bytes) {
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

/// Whether the blocks of the kernel for few rows norm them, each for itself.  A small product takes little
/// longer than a kernel does to begin, so that pays for all rows of one tile.  A large one is bound by what
/// it reads, and for each row a block reads a quarter or more of what it does of weights through a
/// second-level cache that gives little more than twice what memory does.
constexpr int64_t most_normed_rows = 8;
static_assert(most_normed_rows <= few_rows);
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
