#include "kernels/gpu/device.cuh"
#include "kernels/vocabulary/edit_logits_launch.h"

namespace clover::kernels::cuda {
namespace {

constexpr int threads = 256;

/// A block an edited row; no two edits of a phase are of one token.
__global__ void __launch_bounds__(threads)
    edit_rows(float* logits, int64_t width, const LogitEdit* edits, const EditedRow* rows, float* held) {
  let_next_begin();
  wait_for_last();
  const EditedRow row = rows[blockIdx.x];
  float* const x = logits + row.row * width;
  // Rows do not share these edits, so each has room of its own there.
  for (int i = row.own_begin + threadIdx.x; i < row.own_end; i += threads)
    held[i] = edited(x[edits[i].id], edits[i]);
  __syncthreads();
  for (int i = row.begin + threadIdx.x; i < row.end; i += threads)
    x[edits[i].id] = edited(x[edits[i].id], edits[i]);
  __syncthreads();
  for (int i = row.own_begin + threadIdx.x; i < row.own_end; i += threads) x[edits[i].id] = held[i];
}

}  // namespace

void launch_edit_logits(float* logits, int64_t width, const void* edits, const void* rows, int64_t count,
                        float* held, Stream stream) {
  launch("edit_logits", edit_rows, dim3(count), threads, 0, stream, logits, width,
         static_cast<const LogitEdit*>(edits), static_cast<const EditedRow*>(rows), held);
}

}  // namespace clover::kernels::cuda
