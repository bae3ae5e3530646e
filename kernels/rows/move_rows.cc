#include "kernels/rows/move_rows.h"

#include "kernels/check.h"
#include "kernels/cpu.h"
#include "kernels/gpu/cuda.h"

namespace clover::kernels {

void move_rows(at::Tensor& cache, const at::Tensor& moves) {
  const bool cuda = on_cuda("move_rows", cache);
  check_tensor("move_rows", "cache", cache, {-1, -1, -1, -1, -1}, std::nullopt, cache.device());
  check_tensor("move_rows", "moves", moves, {3, -1}, at::kLong, cache.device());
  if (moves.size(1) == 0 || cache.numel() == 0) return;
  (cuda ? cuda::move_rows : cpu::move_rows)(cache, moves);
}

}  // namespace clover::kernels
