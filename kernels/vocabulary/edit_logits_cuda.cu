#include "kernels/gpu/device.cuh"
#include "kernels/vocabulary/edit_logits.h"

namespace clover::kernels {
using namespace cuda;
namespace {

constexpr int threads = 256;

/// One block for each EditedRow.  Within each of the three loops no two edits are of one token.
__global__ void __launch_bounds__(threads) edit_rows(float* logits, int64_t width, const LogitEdit* edits,
                                                     const EditedRow* rows, float* own_values) {
  launch_dependents();
  wait_for_prior_kernel();
  const EditedRow row = rows[blockIdx.x];
  float* const x = logits + row.row * width;
  // The logits as the row's own edits leave them.  No two rows share an own edit, so edit i writes element i.
  for (int i = row.own_begin + threadIdx.x; i < row.own_end; i += threads)
    own_values[i] = apply_edit(x[edits[i].id], edits[i]);
  __syncthreads();
  for (int i = row.begin + threadIdx.x; i < row.end; i += threads)
    x[edits[i].id] = apply_edit(x[edits[i].id], edits[i]);
  __syncthreads();
  for (int i = row.own_begin + threadIdx.x; i < row.own_end; i += threads) x[edits[i].id] = own_values[i];
}

}  // namespace

void run_on_gpu(const EditCall& call, const GpuContext& context) {
  const auto own_values = context.scratch<float>(call.edit_count);
  launch("edit_logits", edit_rows, dim3(call.row_count), threads, 0, context.stream, call.logits, call.width,
         call.edits, call.rows, own_values.get());
}

}  // namespace clover::kernels
