#pragma once

#include "kernels/linear/linear_plan.h"

// Products on a GPU by a plan that is given: what run_on_gpu(LinearCall) is made of, and what tests compare
// plans with.
namespace clover::kernels::cuda {

/// Of the current GPU.  Those of compute capability 8.6, 8.9 and 12 have no large_shared_memory; `clusters`:
/// of sm_90, untried (uses_warpgroup_products).
GpuLimits gpu_limits();
/// Whether products on the GPU of a call may be made by clusters (uses_warpgroup_products).
bool may_use_clusters(const GpuContext& context);

/// call.norm is null unless norms_rows(call).
void run_by(const LinearPlan& plan, const LinearCall& call, const GpuContext& context);

/// The same with memory of the caller's.  `workspace`: linear_workspace(..) floats; `arrived`:
/// most_split_tiles zeros, which it leaves zero.
int64_t linear_workspace(const LinearCall& call, const LinearPlan& plan);
void launch_linear(const LinearCall& call, const LinearPlan& plan, float* workspace, unsigned* arrived,
                   Stream stream);

/// A product of 16-bit weights by clusters of blocks (sm_90).
void launch_linear_clusters(const LinearCall& call, const ClusterPlan& plan, Stream stream);

}  // namespace clover::kernels::cuda
