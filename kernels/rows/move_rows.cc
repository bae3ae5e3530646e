#include "kernels/rows/move_rows.h"

#include "kernels/op/check.h"
#include "kernels/op/run.h"

namespace clover::kernels {

void move_rows(at::Tensor& cache, const at::Tensor& moves) {
  const at::Device device = device_of("move_rows", cache);
  check_tensor("move_rows", "cache", cache, {-1, -1, -1, -1, -1}, std::nullopt, device);
  check_tensor("move_rows", "moves", moves, {3, -1}, at::kLong, device);
  if (moves.size(1) == 0 || cache.numel() == 0) return;
  const MoveCall call{.cache = cache.mutable_data_ptr(),
                      .parts = cache.size(0),
                      .pages = cache.size(1),
                      .kv_heads = cache.size(2),
                      .page_size = cache.size(3),
                      .row_bytes = cache.size(4) * cache.element_size(),
                      .moves = moves.const_data_ptr<int64_t>(),
                      .count = moves.size(1)};
  TORCH_CHECK(device.is_cpu() || call.row_bytes % 16 == 0, "move_rows: a head's row takes ", call.row_bytes,
              " bytes, expected a multiple of 16 on a GPU.");
  run("move_rows", cache, call);
}

}  // namespace clover::kernels
