#pragma once

#include "kernels/op/call.h"
#include "kernels/vocabulary/logit_edit.h"

namespace clover::kernels {

/// Edits some logits of some rows in place; the other logits are not touched.
///   logits fp32 [R, V] contiguous
///   edits  i32 [E, 4] of LogitEdits, rows i32 [N, 5] of EditedRows, on the device of the logits
/// `rows` names each row at most once, a range names each token at most once, and no two rows share an own
/// edit: nothing checks that.  The CPU checks that ids and ranges are valid; a GPU does not.
void edit_logits(at::Tensor& logits, const at::Tensor& edits, const at::Tensor& rows);

struct EditCall {
  float* logits;  // [logit_rows, width]
  int64_t logit_rows, width;
  const LogitEdit* edits;  // [edit_count]
  int64_t edit_count;
  const EditedRow* rows;  // [row_count]
  int64_t row_count;
};
void run_on_cpu(const EditCall& call);
CLOVER_GPU_KERNEL void run_on_gpu(const EditCall& call, const GpuContext& context);

}  // namespace clover::kernels
