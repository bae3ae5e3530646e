#include <algorithm>
#include <vector>

#include "kernels/cpu.h"
#include "kernels/cpu_loops.h"

namespace clover::kernels::cpu {
namespace {

/// Rows of x that are repacked at a time: they should stay in a second-level cache while every panel passes
/// by.
constexpr int64_t block_bytes = 384 << 10;
/// Multiply-adds below which one thread does it all.
constexpr int64_t serial_work = 64 << 10;

/// So many floats from the start of a cache line.  Grows once; then calls allocate nothing.
float* grown(std::vector<float>& storage, int64_t floats) {
  if (static_cast<int64_t>(storage.size()) < floats + 16) storage.resize(floats + 16);
  const uintptr_t address = reinterpret_cast<uintptr_t>(storage.data());
  return storage.data() + (64 - address % 64) % 64 / sizeof(float);
}

/// One block of rows: the tiles of x are repacked together, then each thread takes its panels.
void run_block(const LinearBody& body, const LinearWork& call) {
  const int64_t panels = (call.outputs + 15) / 16;
  const int64_t tiles = (call.rows + body.tile_rows - 1) / body.tile_rows;
  const int64_t work = call.rows * call.outputs * call.inputs;
  const int64_t parts = work < serial_work ? 1 : std::min({threads(), panels, team::most_parts});
  if (parts == 1) {
    body.pack(call, 0, tiles);
    body.panels(call, 0, panels, 0, tiles);
    return;
  }
  // A few rows are repacked sooner than threads can meet.
  if (tiles >= 2 * parts)
    share_out(tiles, 1, [&](int64_t begin, int64_t end) { body.pack(call, begin, end); });
  else
    body.pack(call, 0, tiles);
  share_out(panels, 1, [&](int64_t begin, int64_t end) { body.panels(call, begin, end, 0, tiles); });
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

/// What becomes of the sums of `rows` rows from `first` on.
void finish(const LinearCall& call, float* sums, int64_t first, int64_t rows) {
  const CpuBodies& body = bodies();
  for_rows(rows, 2 * call.outputs, [&](int64_t begin, int64_t end) {
    float* from = sums + begin * call.outputs;
    if (call.epilogue == Epilogue::silu_mul) {
      body.silu_mul(from, call.outputs / 2, call.product, call.element, first + begin, first + end);
      return;
    }
    if (call.rope.query_norm != nullptr)
      for (int64_t row = begin; row < end; ++row) norm_heads(body, call.rope, sums + row * call.outputs);
    body.rope(from, call.rope, first + begin, first + end);
  });
}

/// The product in blocks of rows; where something follows it, while a block's sums are in a cache.
void run(const LinearCall& whole) {
  thread_local std::vector<float> tiles_of_x, sums_of_block;
  LinearWork call{whole, nullptr};
  const LinearBody& body = bodies().linear(call.element);
  const int64_t rows = call.rows, inputs = call.inputs, outputs = call.outputs;
  const int64_t tile = body.tile_rows;
  const int64_t fitting = block_bytes / (linear_scratch(1, inputs) * static_cast<int64_t>(sizeof(float)));
  const int64_t block = std::clamp<int64_t>(fitting / tile, 8, 64) * tile;
  const int64_t tiles = (std::min(rows, block) + tile - 1) / tile;
  call.scratch = grown(tiles_of_x, linear_scratch(tiles * tile, inputs));
  const bool stores = call.epilogue == Epilogue::store;
  if (!stores) call.y = grown(sums_of_block, std::min(rows, block) * outputs);
  const int64_t row_bytes = inputs * (call.element == Element::fp32 ? 4 : 2);
  for (int64_t first = 0; first < rows; first += block) {
    call.rows = std::min(block, rows - first);
    call.x = static_cast<const char*>(whole.x) + first * row_bytes;
    if (stores) call.y = whole.y + first * outputs;
    run_block(body, call);
    if (!stores) finish(whole, call.y, first, call.rows);
  }
}

/// Rows as they are multiplied.
at::Tensor ready(const LinearInput& input, const PackedWeight& weight) {
  if (!input.norm.defined()) return input.x;
  at::Tensor normed = at::empty(input.x.sizes(), input.x.options().dtype(weight.dtype()));
  rms_norm(input.x, input.norm, input.eps, normed);
  return normed;
}

}  // namespace

void linear(const LinearInput& x, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
            bool accumulate) {
  run(call_of(ready(x, weight), weight, bias, y, accumulate));
}

void linear_silu_mul(const LinearInput& x, const PackedWeight& gate_up, at::Tensor& out) {
  run(call_of(ready(x, gate_up), gate_up, out));
}

void linear_rope_and_store(const LinearInput& x, const QkvWeight& qkv, const at::Tensor& cos,
                           const at::Tensor& sin, const at::Tensor& slots, at::Tensor& q, at::Tensor& k,
                           at::Tensor& v) {
  run(call_of(ready(x, qkv.matrix), qkv, cos, sin, slots, q, k, v));
}

}  // namespace clover::kernels::cpu
