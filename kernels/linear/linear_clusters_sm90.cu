#include "kernels/linear/linear_clusters.cuh"

#include "kernels/linear/linear_launch.h"

// Compiled for sm_90a alone, which has wgmma.
namespace clover::kernels::cuda {
namespace {

template <class T>
void launch_by_rows(const LinearCall& call, const ClusterPlan& plan, Stream stream) {
  switch (plan.rows_per_tile) {
#define CLOVER_ROWS(rows) \
  case rows:              \
    return launch_product<T, rows / 8>(call, plan, stream);
    CLOVER_ROWS(16)
    CLOVER_ROWS(24)
    CLOVER_ROWS(32)
    CLOVER_ROWS(40)
    CLOVER_ROWS(48)
    CLOVER_ROWS(64)
    CLOVER_ROWS(80)
    CLOVER_ROWS(96)
    CLOVER_ROWS(128)
    CLOVER_ROWS(160)
    CLOVER_ROWS(192)
    CLOVER_ROWS(256)
#undef CLOVER_ROWS
    default:
      launch_failed("linear", "no kernel has tiles of so many rows");
  }
}

}  // namespace

void launch_linear_clusters(const LinearCall& call, const ClusterPlan& plan, Stream stream) {
  if (call.element == Element::bf16) return launch_by_rows<Bf16>(call, plan, stream);
  launch_by_rows<Fp16>(call, plan, stream);
}

}  // namespace clover::kernels::cuda
