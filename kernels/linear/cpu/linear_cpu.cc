#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cpu/loops.h"
#include "kernels/cpu/rows.h"
#include "kernels/linear/cpu/linear_loops.h"
#include "kernels/rows/rms_norm.h"
#include "kernels/vocabulary/logit_loops.h"
#include "kernels/weights/panels.h"

namespace clover::kernels {
using namespace cpu;
namespace {

/// Bytes of the sums that linear_arg_max computes and searches at a time: they should stay in the
/// second-level cache beside weights.
constexpr int64_t arg_max_bytes = 256 << 10;
/// A product of fewer multiply-adds is computed by one thread.
constexpr int64_t serial_work = 64 << 10;

const LinearLoops& loops_for(Element element) {
  return element == Element::bf16 ? static_cast<const LinearLoops&>(loops<Bf16LinearLoops>())
                                  : loops<LinearLoops>();
}

/// A block of rows that are multiplied together.
struct RowBlock {
  int64_t panels, tiles;
  int64_t parts;  // of the panels, one for each thread

  explicit RowBlock(const LinearLoops& loop, const LinearCall& call)
      : panels(panels_of(call.outputs)), tiles((call.rows + loop.tile_rows - 1) / loop.tile_rows) {
    const int64_t work = call.rows * call.outputs * call.inputs;
    parts = work < serial_work ? 1 : std::min(threads(), panels);
  }
  /// First panel of a part.
  int64_t begin(int64_t part) const { return panels * part / parts; }
  int64_t end(int64_t part) const { return begin(part + 1); }
};

/// Packs the tiles of x, unless they are read in place: by all threads, or by one if rows are too few to pay
/// for starting threads.
void pack(const LinearLoops& loop, const LinearWork& call, const RowBlock& block) {
  if (loop.in_place(call)) return;
  if (block.parts == 1 || block.tiles < 2 * block.parts) return loop.pack(call, 0, block.tiles);
  parallel_for(block.tiles, 1, [&](int64_t begin, int64_t end) { loop.pack(call, begin, end); });
}

/// Computes the product of a block.
void run_block(const LinearLoops& loop, const LinearWork& call) {
  const RowBlock block(loop, call);
  pack(loop, call, block);
  parallel_parts(block.parts, [&](int64_t part) {
    loop.panels(call, block.begin(part), block.end(part), 0, block.tiles);
  });
}

/// The largest sum of a row so far.
struct Best {
  float value = -std::numeric_limits<float>::infinity();
  int64_t output = -1;
};

/// Bytes of a panel of weights in PackedWeight's layout on a CPU.
int64_t bytes_of_panel(const LinearCall& call) {
  const bool paired = call.element == Element::bf16;
  const int64_t inputs = paired ? (call.inputs + 31) / 32 * 32 : call.inputs;
  return inputs * panel_outputs * bytes_of(call.element);
}

/// Finds for each row of a block the output of panels [begin, end) with the largest sum, ties to the first
/// one. It takes so many panels at a time that their sums stay in a cache.
void find_best(const LinearLoops& loop, const LinearWork& call, const RowBlock& block, int64_t begin,
               int64_t end, Best* best) {
  const int64_t panel_bytes = bytes_of_panel(call);
  const LogitLoops& row_loop = loops<LogitLoops>();
  thread_local std::vector<float> storage;
  const int64_t at_once = std::max<int64_t>(4, arg_max_bytes / (call.rows * panel_outputs * 4));
  LinearWork part_call = call;  // the product with the panels that are taken at a time
  part_call.y = grow_scratch(storage, call.rows * panel_outputs * std::min(at_once, end - begin));
  for (int64_t first = begin; first < end; first += at_once) {
    const int64_t panels = std::min(at_once, end - first), output = first * panel_outputs;
    part_call.panels = static_cast<const char*>(call.panels) + first * panel_bytes;
    part_call.outputs = std::min(panels * panel_outputs, call.outputs - output);
    loop.panels(part_call, 0, panels, 0, block.tiles);
    for (int64_t row = 0; row < call.rows; ++row) {
      const float* sums = part_call.y + row * part_call.outputs;
      const float largest = row_loop.maximum(sums, part_call.outputs);
      if (largest > best[row].value)
        best[row] = {largest, output + row_loop.first_equal(sums, part_call.outputs, largest)};
    }
  }
}

/// The same over all panels: writes the outputs to indices [rows].
void find_best(const LinearLoops& loop, const LinearWork& call, int64_t* indices) {
  const RowBlock block(loop, call);
  pack(loop, call, block);
  thread_local std::vector<Best> found;
  found.assign(block.parts * call.rows, {});
  Best* const best_of_parts = found.data();
  parallel_parts(block.parts, [&](int64_t part) {
    find_best(loop, call, block, block.begin(part), block.end(part), best_of_parts + part * call.rows);
  });
  for (int64_t row = 0; row < call.rows; ++row) {
    Best best;
    for (int64_t part = 0; part < block.parts; ++part)
      if (const Best& part_best = best_of_parts[part * call.rows + row]; part_best.value > best.value)
        best = part_best;
    indices[row] = best.output;
  }
}

/// Applies the norm to each head of a row's queries and keys, in place.
void norm_heads(const RopeCall& call, float* row) {
  const NormLoops& loop = loops<NormLoops>();
  const auto norm = [&](const float* weight, int64_t heads) {
    loop.rms_norm(row, weight, call.norm_eps, call.head_size, row, Element::fp32, 0, heads);
    row += heads * call.head_size;
  };
  norm(call.query_norm, call.query_heads);
  norm(call.key_norm, call.kv_heads);
}

/// Norms, rotates and stores queries, keys and values of `rows` rows from row `first` of the call on; `sums`
/// [rows, outputs].
void rotate_and_store(const LinearCall& call, float* sums, int64_t first, int64_t rows) {
  const RopeLoops& loop = loops<RopeLoops>();
  for_rows(rows, 2 * call.outputs, [&](int64_t begin, int64_t end) {
    float* from = sums + begin * call.outputs;
    if (call.rope.query_norm != nullptr)
      for (int64_t row = begin; row < end; ++row) norm_heads(call.rope, sums + row * call.outputs);
    loop.rope(from, call.rope, first + begin, first + end);
  });
}

/// The call with its rows normed, if it has a norm.
LinearCall normed(LinearCall call) {
  if (call.norm == nullptr) return call;
  thread_local std::vector<float> storage;
  const int64_t numbers = call.rows * call.inputs;
  float* const rows = grow_scratch(storage, call.element == Element::fp32 ? numbers : (numbers + 1) / 2);
  run_on_cpu(NormCall{.x = static_cast<const float*>(call.x),
                      .x_rows = nullptr,
                      .silu_input = nullptr,
                      .weight = call.norm,
                      .eps = call.norm_eps,
                      .rows = call.rows,
                      .width = call.inputs,
                      .out = rows,
                      .element = call.element});
  call.x = rows;
  call.norm = nullptr;
  return call;
}

/// Calls action(work, first row) for blocks of rows; `work` is the product of a block, with scratch memory.
template <class Action>
void for_blocks(const LinearCall& whole, const Action& action) {
  thread_local std::vector<float> tiles_of_x;
  LinearWork call{whole, nullptr};
  const LinearLoops& loop = loops_for(call.element);
  const int64_t inputs = call.inputs, tile = loop.tile_rows;
  const int64_t rows_in_cache = loop.block_bytes / (inputs * loop.input_bytes);
  const int64_t block = std::clamp<int64_t>(rows_in_cache / tile, 8, 64) * tile;
  const int64_t tiles = (std::min(whole.rows, block) + tile - 1) / tile;
  call.scratch = grow_scratch(tiles_of_x, linear_scratch(tiles * tile, inputs));
  const int64_t element_bytes = bytes_of(call.element);
  for (int64_t first = 0; first < whole.rows; first += block) {
    call.rows = std::min(block, whole.rows - first);
    call.x = static_cast<const char*>(whole.x) + first * inputs * element_bytes;
    if (whole.product != nullptr)
      call.product = static_cast<char*>(whole.product) + first * (whole.outputs / 2) * element_bytes;
    action(call, first);
  }
}

/// Computes the product of all epilogues but arg_max. Queries, keys and values are rotated while the sums of
/// their block are still in a cache.
void multiply(const LinearCall& whole) {
  thread_local std::vector<float> sums_of_block;
  const LinearLoops& loop = loops_for(whole.element);
  const bool rotates = whole.epilogue == Epilogue::rope_and_store;
  for_blocks(whole, [&](LinearWork& call, int64_t first) {
    if (whole.y != nullptr) call.y = whole.y + first * call.outputs;
    if (rotates) call.y = grow_scratch(sums_of_block, call.rows * call.outputs);
    run_block(loop, call);
    if (rotates) rotate_and_store(whole, call.y, first, call.rows);
  });
}

}  // namespace

void run_on_cpu(const LinearCall& call) {
  if (call.epilogue != Epilogue::arg_max) return multiply(normed(call));
  const LinearLoops& loop = loops_for(call.element);
  for_blocks(normed(call),
             [&](const LinearWork& block, int64_t first) { find_best(loop, block, call.indices + first); });
}

}  // namespace clover::kernels
