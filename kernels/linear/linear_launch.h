#pragma once

#include <type_traits>

#include "kernels/linear/linear_plan.h"

// Products on a GPU with a given plan (linear_plan.h): run_on_gpu(LinearCall) uses them, and tests compare
// plans with them.
namespace clover::kernels::cuda {

/// Limits of the current GPU.  Compute capabilities 8.6, 8.9 and 12 have no large_shared_memory.  `clusters`
/// says only that the GPU has wgmma, not that its products have the right bits (may_use_clusters).
GpuLimits gpu_limits();
/// Whether the kernel with clusters may be used on the context's GPU: uses_warpgroup_products
/// (kernels/gpu/gpu.h) compares its bits with those of the other kernels.
bool may_use_clusters(const GpuContext& context);

/// Computes the product of a call.  call.norm must be null unless norms_in_kernel(call).
void run_linear(const LinearPlan& plan, const LinearCall& call, const GpuContext& context);

/// The same with memory of the caller: `workspace` has linear_workspace(call, plan) floats, and `arrived`
/// max_split_tiles zeros, which are zero again afterwards.
int64_t linear_workspace(const LinearCall& call, const LinearPlan& plan);
void launch_linear(const LinearCall& call, const LinearPlan& plan, float* workspace, unsigned* arrived,
                   Stream stream);

/// Calls `launch` with the call's epilogue as a std::integral_constant, for kernels that have it as an
/// argument of their template: a switch in the kernel would be thousands of instructions.
template <class Launch>
void with_epilogue(const LinearCall& call, const Launch& launch) {
  switch (call.epilogue) {
    case Epilogue::store:
      return launch(std::integral_constant<Epilogue, Epilogue::store>());
    case Epilogue::silu_mul:
      return launch(std::integral_constant<Epilogue, Epilogue::silu_mul>());
    case Epilogue::rope_and_store:
      return launch(std::integral_constant<Epilogue, Epilogue::rope_and_store>());
    case Epilogue::arg_max:
      return launch(std::integral_constant<Epilogue, Epilogue::arg_max>());
  }
}

/// A product of 16-bit weights by clusters of thread blocks (sm_90, linear_clusters.cuh).
void launch_linear_clusters(const LinearCall& call, const ClusterPlan& plan, Stream stream);

}  // namespace clover::kernels::cuda
