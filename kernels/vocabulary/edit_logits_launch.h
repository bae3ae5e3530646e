#pragma once

#include "kernels/gpu/stream.h"
#include "kernels/vocabulary/logit_edit.h"

namespace clover::kernels::cuda {

/// As kernels/vocabulary/edit_logits.h, `count` rows; rows may not share own edits.  `held`: as many floats
/// as there are edits.
void launch_edit_logits(float* logits, int64_t width, const void* edits, const void* rows, int64_t count,
                        float* held, Stream stream);

}  // namespace clover::kernels::cuda
