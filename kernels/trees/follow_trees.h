#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/calls.h"

namespace clover::kernels {

/// Trees whose rows stood in a pass of R rows, one behind the other, and what the target said.  All on one
/// device.
struct JudgedTrees {
  at::Tensor tokens;   // i64 [R] the target's own after each row; -1: none
  at::Tensor ids;      // i64 [R] of the rows, 0 or more; siblings' differ
  at::Tensor parents;  // i64 [R] row of the pass, an earlier one of its tree; -1: a root
  at::Tensor slots;    // i64 [R] of the cache, that the rows were written to
  at::Tensor trees;    // i64 [S, 5], TreePlaces
};

/// What becomes of them, on the same device.
struct FollowedTrees {
  at::Tensor moves;     // i64 [3, R], move_rows' argument: accepted rows move together, tree by tree
  at::Tensor seen;      // i64 [P] accepted rows of the pass, each tree's in its range
  at::Tensor next_ids;  // i64 [P or more] the target's token after each; 0 for none
  at::Tensor
      frontier;  // i64 [F or more] the place in `seen` of the last accepted row of each tree with a range
};

/// Follows each tree from its root for as long as it holds what the target says.  Of a tree's range in `seen`
/// (TreePlace) the n-th place takes its n-th accepted row, the last place all behind; places that are left
/// repeat the last accepted row.  Elements that belong to no tree stay as they are.  Ranges, rows and parents
/// are what a GPU does not check.
void follow_trees(const JudgedTrees& judged, FollowedTrees& followed);

}  // namespace clover::kernels
