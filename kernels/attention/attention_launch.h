#pragma once

#include "kernels/attention/attention_plan.h"

// Launches of attention's kernels that one .cu file defines and another one uses.
namespace clover::kernels::cuda {

/// Writes the plan of a call to `plan` (PlanShape::words() int32); see attention_plan.h.  It does not depend
/// on q, k, v and out.
void launch_plan(const AttentionCall& call, int32_t* plan, Stream stream);
/// Attention with wide tiles (attention_wide_sm90.cu), which rounds queries and weights to the cache's 16-bit
/// dtype.
void launch_wide_attention(const AttentionCall& call, const PlanShape& shape, int32_t* plan, float* workspace,
                           Stream stream);

}  // namespace clover::kernels::cuda
