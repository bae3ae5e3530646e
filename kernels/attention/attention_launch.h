#pragma once

#include "kernels/attention/attention_plan.h"

// What the .cu files of attention launch of each other's kernels.
namespace clover::kernels::cuda {

/// Who works on which keys, into `plan` (PlanShape::words() words): the same for all calls with these rows,
/// heads and pages, whatever their q, k, v and out.
void launch_plan(const AttentionCall& call, int32_t* plan, Stream stream);
/// Attention by wide tiles (sm_90), which round queries and weights to the cache's 16 bits.
void launch_wide_attention(const AttentionCall& call, const PlanShape& shape, int32_t* plan, float* workspace,
                           Stream stream);

}  // namespace clover::kernels::cuda
