#include "kernels/vocabulary/edit_logits.h"

#include "kernels/check.h"
#include "kernels/cpu.h"
#include "kernels/gpu/cuda.h"

namespace clover::kernels {

void edit_logits(at::Tensor& logits, const at::Tensor& edits, const at::Tensor& rows) {
  const bool cuda = on_cuda("edit_logits", logits);
  check_tensor("edit_logits", "logits", logits, {-1, -1}, at::kFloat, logits.device());
  check_tensor("edit_logits", "edits", edits, {-1, 4}, at::kInt, logits.device());
  check_tensor("edit_logits", "rows", rows, {-1, 5}, at::kInt, logits.device());
  if (edits.size(0) == 0 || rows.size(0) == 0) return;
  (cuda ? cuda::edit_logits : cpu::edit_logits)(logits, edits, rows);
}

}  // namespace clover::kernels
