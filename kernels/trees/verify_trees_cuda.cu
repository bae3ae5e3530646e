#include "kernels/gpu/device.cuh"
#include "kernels/trees/verify_trees_call.h"

namespace clover::kernels {
using namespace cuda;
using namespace verify;
namespace {

/// One warp for each tree: each lane checks whether its row is the next one of the path.
__global__ void __launch_bounds__(warp_size) find_accepted_rows(VerifyCall call) {
  launch_dependents();
  wait_for_prior_kernel();
  const int lane = threadIdx.x;
  const int64_t tree = blockIdx.x;
  const TreeRows tree_rows = call.trees[tree];
  const int64_t end = tree_rows.row + tree_rows.rows;
  int64_t node = tree_rows.row, token = call.tokens[node], accepted = 0;
  if (lane == 0) write_accepted(call, tree, node, accepted);
  ++accepted;
  // Children come after their parents, so one loop over the rows finds the path.
  for (int64_t first = tree_rows.row + 1; first < end; first += warp_size) {
    const int64_t row = first + lane;
    const int64_t parent = row < end ? call.parents[row] : -1, id = row < end ? call.ids[row] : -1;
    for (;;) {
      const unsigned found = __ballot_sync(all_lanes, parent == node && id == token);
      if (found == 0) break;
      node = first + highest_bit(found & (~found + 1));
      token = call.tokens[node];
      if (lane == 0) write_accepted(call, tree, node, accepted);
      ++accepted;
    }
  }
  for (int64_t i = accepted + lane; i < tree_rows.rows; i += warp_size) write_unmoved(call, tree, i);
  for (int64_t i = accepted + lane; i < tree_rows.drafter_rows; i += warp_size)
    write_repeated(call, tree, node, i);
}

}  // namespace

void run_on_gpu(const VerifyCall& call, const GpuContext& context) {
  launch("verify_trees", find_accepted_rows, dim3(static_cast<unsigned>(call.count)), warp_size, 0,
         context.stream, call);
}

}  // namespace clover::kernels
