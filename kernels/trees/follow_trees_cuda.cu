#include "kernels/gpu/device.cuh"
#include "kernels/gpu/launchers.h"
#include "kernels/trees/follow.h"

namespace clover::kernels::cuda {
namespace {

/// A warp a tree: each lane asks of one row whether it comes next.
__global__ void __launch_bounds__(warp_size) follow(FollowCall call) {
  let_next_begin();
  wait_for_last();
  const int lane = threadIdx.x;
  const int64_t tree = blockIdx.x;
  const TreePlace place = call.trees[tree];
  const int64_t end = place.row + place.rows;
  int64_t node = place.row, token = call.tokens[node], accepted = 0;
  if (lane == 0) write_accepted(call, tree, node, accepted);
  ++accepted;
  // Children stand behind their parents: once through is enough.
  for (int64_t first = place.row + 1; first < end; first += warp_size) {
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
  for (int64_t i = accepted + lane; i < place.rows; i += warp_size) write_unmoved(call, tree, i);
  for (int64_t i = accepted + lane; i < place.seen_rows; i += warp_size) write_repeated(call, tree, node, i);
}

}  // namespace

void launch_follow_trees(const FollowCall& call, Stream stream) {
  launch("follow_trees", follow, dim3(static_cast<unsigned>(call.count)), warp_size, 0, stream, call);
}

}  // namespace clover::kernels::cuda
