#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cpu.h"
#include "kernels/cpu/cpu_loops.h"

namespace clover::kernels::cpu {
namespace {

/// Sums of the best of which are sought at a time: they should stay in a second-level cache beside weights.
constexpr int64_t best_bytes = 256 << 10;
/// Multiply-adds below which one thread does it all.
constexpr int64_t serial_work = 64 << 10;

/// A block of rows that are multiplied together.
struct RowBlock {
  int64_t panels, tiles;
  int64_t parts;  // that threads take of the panels

  explicit RowBlock(const LinearBody& body, const LinearCall& call)
      : panels((call.outputs + 15) / 16), tiles((call.rows + body.tile_rows - 1) / body.tile_rows) {
    const int64_t work = call.rows * call.outputs * call.inputs;
    parts = work < serial_work ? 1 : std::min(threads(), panels);
  }
  int64_t begin(int64_t part) const { return panels * part / parts; }
  int64_t end(int64_t part) const { return begin(part + 1); }
};

/// The tiles of x, where they are read as such; by all threads unless a few rows are repacked sooner than
/// they can meet.
void pack(const LinearBody& body, const LinearWork& call, const RowBlock& block) {
  if (body.in_place(call)) return;
  if (block.parts == 1 || block.tiles < 2 * block.parts) return body.pack(call, 0, block.tiles);
  share_out(block.tiles, 1, [&](int64_t begin, int64_t end) { body.pack(call, begin, end); });
}

/// The product of a block.
void run_block(const LinearBody& body, const LinearWork& call) {
  const RowBlock block(body, call);
  pack(body, call, block);
  in_parts(block.parts,
           [&](int64_t part) { body.panels(call, block.begin(part), block.end(part), 0, block.tiles); });
}

/// The largest sum of a row so far.
struct Best {
  float value = -std::numeric_limits<float>::infinity();
  int64_t output = -1;
};

/// Of each row of a block the best among the outputs of panels [begin, end), the first of equals: of so many
/// panels at a time that their sums stay in a cache.
void find_best(const LinearBody& body, const LinearWork& call, const RowBlock& block, int64_t panel_bytes,
               int64_t begin, int64_t end, Best* best) {
  const CpuBodies& rows_of = bodies();
  thread_local std::vector<float> storage;
  const int64_t at_once = std::max<int64_t>(4, best_bytes / (call.rows * 16 * 4));
  LinearWork some = call;
  some.y = grown(storage, call.rows * 16 * std::min(at_once, end - begin));
  for (int64_t first = begin; first < end; first += at_once) {
    const int64_t panels = std::min(at_once, end - first), output = first * 16;
    some.panels = static_cast<const char*>(call.panels) + first * panel_bytes;
    some.outputs = std::min(panels * 16, call.outputs - output);
    body.panels(some, 0, panels, 0, block.tiles);
    for (int64_t row = 0; row < call.rows; ++row) {
      const float* sums = some.y + row * some.outputs;
      const float largest = rows_of.maximum(sums, some.outputs);
      if (largest > best[row].value)
        best[row] = {largest, output + rows_of.first_equal(sums, some.outputs, largest)};
    }
  }
}

/// The same of all panels, to `indices`.
void find_best(const LinearBody& body, const LinearWork& call, int64_t panel_bytes, int64_t* indices) {
  const RowBlock block(body, call);
  pack(body, call, block);
  thread_local std::vector<Best> found;
  found.assign(block.parts * call.rows, {});
  Best* const of_parts = found.data();
  in_parts(block.parts, [&](int64_t part) {
    find_best(body, call, block, panel_bytes, block.begin(part), block.end(part),
              of_parts + part * call.rows);
  });
  for (int64_t row = 0; row < call.rows; ++row) {
    Best best;
    for (int64_t part = 0; part < block.parts; ++part)
      if (const Best& own = of_parts[part * call.rows + row]; own.value > best.value) best = own;
    indices[row] = best.output;
  }
}

/// Each head of a row's queries and keys through its norm, in place.
void norm_heads(const CpuBodies& body, const RopeCall& call, float* row) {
  const auto norm = [&](const float* weight, int64_t heads) {
    body.rms_norm(row, weight, call.norm_eps, call.head_size, row, Element::fp32, 0, heads);
    row += heads * call.head_size;
  };
  norm(call.query_norm, call.query_heads);
  norm(call.key_norm, call.kv_heads);
}

/// Turns and stores `rows` rows of queries, keys and values from `first` on.
void turn_and_store(const LinearCall& call, float* sums, int64_t first, int64_t rows) {
  const CpuBodies& body = bodies();
  for_rows(rows, 2 * call.outputs, [&](int64_t begin, int64_t end) {
    float* from = sums + begin * call.outputs;
    if (call.rope.query_norm != nullptr)
      for (int64_t row = begin; row < end; ++row) norm_heads(body, call.rope, sums + row * call.outputs);
    body.rope(from, call.rope, first + begin, first + end);
  });
}

/// The call with rows that went through its norm, if it has one.
LinearCall normed(LinearCall call) {
  if (call.norm == nullptr) return call;
  thread_local std::vector<float> storage;
  const int64_t numbers = call.rows * call.inputs;
  float* const rows = grown(storage, call.element == Element::fp32 ? numbers : (numbers + 1) / 2);
  norm_rows(static_cast<const float*>(call.x), call.norm, call.norm_eps, call.inputs, rows, call.element,
            call.rows);
  call.x = rows;
  call.norm = nullptr;
  return call;
}

/// action(call, first row) for blocks of rows, with room for their tiles.
template <class Action>
void for_blocks(const LinearCall& whole, const Action& action) {
  thread_local std::vector<float> tiles_of_x;
  LinearWork call{whole, nullptr};
  const LinearBody& body = bodies().linear(call.element);
  const int64_t inputs = call.inputs, tile = body.tile_rows;
  const int64_t fitting = body.block_bytes / (inputs * body.input_bytes);
  const int64_t block = std::clamp<int64_t>(fitting / tile, 8, 64) * tile;
  const int64_t tiles = (std::min(whole.rows, block) + tile - 1) / tile;
  call.scratch = grown(tiles_of_x, linear_scratch(tiles * tile, inputs));
  const int64_t element_bytes = call.element == Element::fp32 ? 4 : 2;
  for (int64_t first = 0; first < whole.rows; first += block) {
    call.rows = std::min(block, whole.rows - first);
    call.x = static_cast<const char*>(whole.x) + first * inputs * element_bytes;
    if (whole.product != nullptr)
      call.product = static_cast<char*>(whole.product) + first * (whole.outputs / 2) * element_bytes;
    action(call, first);
  }
}

/// The product; what queries, keys and values are turned by follows while a block's sums are in a cache.
void run(const LinearCall& whole) {
  thread_local std::vector<float> sums_of_block;
  const LinearBody& body = bodies().linear(whole.element);
  const bool turns = whole.epilogue == Epilogue::rope_and_store;
  for_blocks(whole, [&](LinearWork& call, int64_t first) {
    if (whole.y != nullptr) call.y = whole.y + first * call.outputs;
    if (turns) call.y = grown(sums_of_block, call.rows * call.outputs);
    run_block(body, call);
    if (turns) turn_and_store(whole, call.y, first, call.rows);
  });
}

}  // namespace

void linear(const LinearInput& x, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
            bool accumulate) {
  run(normed(call_of(x, weight, bias, y, accumulate)));
}

at::Tensor linear_arg_max(const LinearInput& x, const PackedWeight& weight) {
  at::Tensor indices = at::empty({x.x.size(0)}, x.x.options().dtype(at::kLong));
  int64_t* const to = indices.mutable_data_ptr<int64_t>();
  const LinearBody& body = bodies().linear(element_of(weight.dtype()));
  const int64_t panel_bytes = weight.bytes() / weight.panels().size(0);
  for_blocks(normed(call_of(x, weight)),
             [&](const LinearWork& call, int64_t first) { find_best(body, call, panel_bytes, to + first); });
  return indices;
}

void linear_silu_mul(const LinearInput& x, const PackedWeight& gate_up, at::Tensor& out) {
  run(normed(call_of(x, gate_up, out)));
}

void linear_rope_and_store(const LinearInput& x, const QkvWeight& qkv, const at::Tensor& cos,
                           const at::Tensor& sin, const at::Tensor& slots, at::Tensor& q, at::Tensor& k,
                           at::Tensor& v) {
  run(normed(call_of(x, qkv, cos, sin, slots, q, k, v)));
}

}  // namespace clover::kernels::cpu
