#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/trees/tree_growth_call.h"

// Growing candidate trees level by level.  The rule itself, which the CPU and the GPU share, is in
// tree_growth_call.h; the policies that call it are in infer/tree/growth_policies.h.
namespace clover::kernels {

/// Candidate trees of S sequences while they grow, on one device, with room for N nodes each.
struct GrowingTrees {
  at::Tensor
      ids;  // i64 [S, N] token of each node; the root's entry and those behind the last node are undefined
  at::Tensor parent;  // i32 [S, N] number of the parent node, likewise
  at::Tensor score;  // fp32 [S, N] what nodes are ranked by (LevelRule), likewise: their joint probability or
                     // its logarithm
  at::Tensor state;  // i32 [S, 10] a TreeState for each tree
  // What the drafter computes next, one row for each live node (or tree): the row of the deepest level that
  // it continues, and the token that it is given.
  at::Tensor rows;       // i64 [2, F], zeros behind the last row; F >= S, or S * most_live
  at::Tensor row_count;  // i32 [1] rows in use
  at::Tensor plans{};    // i32 [S, P, 3] of PlannedNode: every tree follows its own; undefined: none does
};

/// Adds one level to all trees.  Of all candidates of a tree's live nodes those of the highest score become
/// nodes, in that order, as many as most_nodes and the rule leave room for; the first `most_live` of them are
/// live.  Of a tree with a plan, the next level's nodes as they stand there; those with children are live,
/// whatever `most_live`.  A guess's probability is exp(logit - log_sum) in fp32, that of NaN 0.
///   logits fp32 [G, W], best first; ids i64 [G, W] below 2^32 - 1; log_sums fp32 [G]; all contiguous
/// The rows of guesses named in `trees` are below G, which a GPU does not check, nor that ranks of a plan are
/// below W.
void grow_level(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& log_sums,
                const LevelRule& rule, int64_t most_live, GrowingTrees& trees);

}  // namespace clover::kernels
