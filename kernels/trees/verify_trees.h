#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/trees/verify_trees_call.h"

// Verification on the device: the path that the target accepts of each candidate tree, found before the CPU
// knows the target's tokens.  Its twin on the CPU is infer/tree/verify.h (verify_chosen); both must accept
// the same rows.
namespace clover::kernels {

/// Candidate trees whose rows stood in a pass of R rows, one tree behind the other, and the tokens that the
/// target chose. All on one device.
struct VerifyInput {
  at::Tensor tokens;   // i64 [R] the target's token after each row; -1: none
  at::Tensor ids;      // i64 [R] token of each row, 0 or more; those of siblings differ
  at::Tensor parents;  // i64 [R] row of the parent in the pass, an earlier one of the same tree; -1: a root
  at::Tensor slots;    // i64 [R] of the KV cache, that the rows were written to
  at::Tensor trees;    // i64 [S, 5] a TreeRows for each tree
};

/// What is accepted, on the same device.
struct VerifyOutput {
  at::Tensor moves;  // i64 [3, R] the argument of move_rows that brings each tree's accepted rows together
  at::Tensor drafter_rows;  // i64 [P] accepted rows of the pass, those of a tree in its range (TreeRows)
  at::Tensor next_ids;      // i64 [P or more] the target's token after each of them; 0 for none
  at::Tensor last_rows;  // i64 [F or more] index in `drafter_rows` of the last accepted row of each tree with
                         // a range
};

/// Follows each tree from its root for as long as a child holds the target's token.  The n-th accepted row of
/// a tree is written to the n-th place of its range in `drafter_rows`; those that find no room left there are
/// written to the last place, one over the other, and places that are left repeat the last accepted row.
/// Elements that belong to no tree stay as they are.  A GPU does not check ranges, rows and parents.
void verify_trees(const VerifyInput& input, VerifyOutput& output);

}  // namespace clover::kernels
