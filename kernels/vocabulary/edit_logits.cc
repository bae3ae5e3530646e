#include "kernels/vocabulary/edit_logits.h"

#include "kernels/op/check.h"
#include "kernels/op/run.h"

namespace clover::kernels {

void edit_logits(at::Tensor& logits, const at::Tensor& edits, const at::Tensor& rows) {
  const at::Device device = device_of("edit_logits", logits);
  check_tensor("edit_logits", "logits", logits, {-1, -1}, at::kFloat, device);
  check_tensor("edit_logits", "edits", edits, {-1, 4}, at::kInt, device);
  check_tensor("edit_logits", "rows", rows, {-1, 5}, at::kInt, device);
  if (edits.size(0) == 0 || rows.size(0) == 0) return;
  run("edit_logits", logits,
      EditCall{.logits = logits.mutable_data_ptr<float>(),
               .logit_rows = logits.size(0),
               .width = logits.size(1),
               .edits = static_cast<const LogitEdit*>(edits.const_data_ptr()),
               .edit_count = edits.size(0),
               .rows = static_cast<const EditedRow*>(rows.const_data_ptr()),
               .row_count = rows.size(0)});
}

}  // namespace clover::kernels
