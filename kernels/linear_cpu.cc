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
float* scratch(int64_t floats) {
  thread_local std::vector<float> storage;
  if (static_cast<int64_t>(storage.size()) < floats + 16) storage.resize(floats + 16);
  const uintptr_t address = reinterpret_cast<uintptr_t>(storage.data());
  return storage.data() + (64 - address % 64) % 64 / sizeof(float);
}

int64_t share(int64_t count, int64_t part, int64_t parts) {
  return count * part / parts;
}

/// One block of rows: the tiles of x are repacked together, then each thread takes its panels.
void run_block(const LinearBody& body, const LinearWork& call) {
  const int64_t panels = (call.outputs + 15) / 16;
  const int64_t tiles = (call.rows + body.tile_rows - 1) / body.tile_rows;
  const int64_t work = call.rows * call.outputs * call.inputs;
  const int64_t threads = work < serial_work ? 1 : std::min<int64_t>(at::get_num_threads(), panels);
  if (threads == 1 || at::in_parallel_region()) {
    body.pack(call, 0, tiles);
    body.panels(call, 0, panels, 0, tiles);
    return;
  }
  // A few rows are repacked sooner than threads can meet.
  const bool pack_together = tiles >= 2 * threads;
  if (!pack_together) body.pack(call, 0, tiles);
#pragma omp parallel for schedule(static) num_threads(threads) if (pack_together)
  for (int64_t part = 0; part < threads; ++part) {
    if (pack_together) body.pack(call, share(tiles, part, threads), share(tiles, part + 1, threads));
  }
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t part = 0; part < threads; ++part) {
    body.panels(call, share(panels, part, threads), share(panels, part + 1, threads), 0, tiles);
  }
}

}  // namespace

void linear(const at::Tensor& x, const PackedWeight& weight, const at::Tensor& bias, at::Tensor& y,
            bool accumulate) {
  LinearWork call{call_of(x, weight, bias, y, accumulate), nullptr};
  const LinearBody& body = bodies().linear(call.element);
  const int64_t rows = call.rows, inputs = call.inputs, outputs = call.outputs;
  const int64_t tile = body.tile_rows;
  const int64_t fitting = block_bytes / (linear_scratch(1, inputs) * static_cast<int64_t>(sizeof(float)));
  const int64_t block = std::clamp<int64_t>(fitting / tile, 8, 64) * tile;
  const int64_t tiles = (std::min(rows, block) + tile - 1) / tile;
  call.scratch = scratch(linear_scratch(tiles * tile, inputs));
  for (int64_t first = 0; first < rows; first += block) {
    call.rows = std::min(block, rows - first);
    call.x = static_cast<const char*>(x.const_data_ptr()) + first * inputs * x.element_size();
    call.y = y.mutable_data_ptr<float>() + first * outputs;
    run_block(body, call);
  }
}

}  // namespace clover::kernels::cpu
