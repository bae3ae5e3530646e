#pragma once

#include "kernels/calls.h"
#include "kernels/gpu/numbers.h"

// What following a tree writes down, for host and device.
namespace clover::kernels::cuda {

/// Row `node` of the pass is the `accepted`-th row accepted of tree number `tree`.
CLOVER_BOTH void write_accepted(const FollowCall& call, int64_t tree, int64_t node, int64_t accepted) {
  const TreePlace& place = call.trees[tree];
  const int64_t at = place.row + accepted;
  call.moves[at] = node == at ? -1 : call.slots[node];
  call.moves[call.rows + at] = call.slots[at];
  call.moves[2 * call.rows + at] = tree;
  if (place.seen_rows == 0) return;
  const int64_t last = place.seen_rows - 1, to = place.seen + (accepted < last ? accepted : last);
  call.seen[to] = node;
  call.next_ids[to] = call.tokens[node] < 0 ? 0 : call.tokens[node];
  call.frontier[place.frontier] = to;
}

/// Row `offset` of a tree takes no accepted one.
CLOVER_BOTH void write_unmoved(const FollowCall& call, int64_t tree, int64_t offset) {
  const int64_t at = call.trees[tree].row + offset;
  call.moves[at] = -1;
  call.moves[call.rows + at] = call.slots[at];
  call.moves[2 * call.rows + at] = tree;
}

/// Place `offset` of a tree's range repeats the last accepted row, `node`.
CLOVER_BOTH void write_repeated(const FollowCall& call, int64_t tree, int64_t node, int64_t offset) {
  const int64_t at = call.trees[tree].seen + offset;
  call.seen[at] = node;
  call.next_ids[at] = call.tokens[node] < 0 ? 0 : call.tokens[node];
}

}  // namespace clover::kernels::cuda
