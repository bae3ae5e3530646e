#include <c10/util/Exception.h>

#include "kernels/call_of.h"
#include "kernels/cpu.h"
#include "kernels/trees/follow.h"

namespace clover::kernels::cpu {
namespace {

bool within(int64_t begin, int64_t count, int64_t size) {
  return begin >= 0 && count >= 0 && count <= size && begin <= size - count;
}

void check(const FollowCall& call, int64_t tree, const FollowedTrees& followed) {
  const TreePlace& place = call.trees[tree];
  TORCH_CHECK(within(place.row, place.rows, call.rows) && place.rows > 0, "follow_trees: tree ", tree,
              " has rows ", place.row, " + ", place.rows, " of ", call.rows, ".");
  TORCH_CHECK(place.seen_rows == 0 || (within(place.seen, place.seen_rows, followed.seen.size(0)) &&
                                       within(place.frontier, 1, followed.frontier.size(0))),
              "follow_trees: tree ", tree, " has no room for the rows accepted.");
}

}  // namespace

void follow_trees(const JudgedTrees& judged, FollowedTrees& followed) {
  const FollowCall call = call_of(judged, followed);
  for (int64_t tree = 0; tree < call.count; ++tree) {
    check(call, tree, followed);
    const TreePlace& place = call.trees[tree];
    int64_t node = place.row, accepted = 0;
    cuda::write_accepted(call, tree, node, accepted++);
    // Children stand behind their parents: once through is enough.
    for (int64_t row = node + 1; row < place.row + place.rows; ++row) {
      if (call.parents[row] != node || call.ids[row] != call.tokens[node]) continue;
      node = row;
      cuda::write_accepted(call, tree, node, accepted++);
    }
    for (int64_t i = accepted; i < place.rows; ++i) cuda::write_unmoved(call, tree, i);
    for (int64_t i = accepted; i < place.seen_rows; ++i) cuda::write_repeated(call, tree, node, i);
  }
}

}  // namespace clover::kernels::cpu
