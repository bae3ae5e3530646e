#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/trees/verify_trees_call.h"

// Verification on the device: finds the path of each candidate tree that the target accepts, before the CPU
// knows the target's tokens.  The engine repeats it on the CPU with verify_chosen (infer/tree/verify.h); both
// must accept the same rows.
namespace clover::kernels {

/// The candidate trees in a pass of R rows, and the tokens that the target chose.  The rows of a tree are
/// consecutive.  All tensors are on one device.
struct VerifyInput {
  at::Tensor tokens;   // i64 [R] the target's token after each row; -1: none
  at::Tensor ids;      // i64 [R] token of each row, at least 0; siblings have different tokens
  at::Tensor parents;  // i64 [R] row of the parent in the pass, an earlier one of the same tree; -1: a root
  at::Tensor slots;    // i64 [R] KV cache slot of each row
  at::Tensor trees;    // i64 [S, 5] a TreeRows for each tree
};

/// The accepted rows, on the same device.
struct VerifyOutput {
  // i64 [3, R] argument of move_rows (kernels/rows/move_rows.h) that moves each tree's accepted rows to
  // consecutive cache slots.
  at::Tensor moves;
  // i64 [D] rows of the pass that were accepted, which the drafter reads next; each tree writes its range
  // (TreeRows), and D is large enough for all ranges.
  at::Tensor drafter_rows;
  at::Tensor next_ids;  // i64 [D or more] the target's token after each of drafter_rows; 0 for none
  // i64 [trees with a range, or more] for each of them: index in drafter_rows of its last accepted row.
  at::Tensor last_rows;
};

/// Accepts rows of each tree from its root on, as long as a child holds the target's token.  The n-th
/// accepted row of a tree is written to element n of its range of drafter_rows.  If the range is too short,
/// its last element holds the last accepted row; if it is too long, its remaining elements repeat that row.
/// Elements that belong to no tree are not written.  A GPU does not check ranges, rows and parents.
void verify_trees(const VerifyInput& input, VerifyOutput& output);

}  // namespace clover::kernels
