#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/vocabulary/logit_edit.h"

namespace clover::kernels {

/// Edits some logits of some rows, in place; all others keep their bits.
///   logits fp32 [R, V] contiguous
///   edits  i32 [E, 4] of LogitEdits, rows i32 [N, 5] of EditedRows, on the device of the logits: no row
///   stands there twice, no token twice in a range, and own edits are no other row's; a GPU checks none of
///   it, nor ids and ranges
void edit_logits(at::Tensor& logits, const at::Tensor& edits, const at::Tensor& rows);

}  // namespace clover::kernels
