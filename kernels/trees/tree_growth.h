#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/trees/tree_growth_call.h"

// Growing candidate trees level by level.  The rule itself, which the CPU and the GPU share, is in
// tree_growth_call.h; the policies that call it are in infer/tree/growth_policies.h.
namespace clover::kernels {

/// Candidate trees of S sequences while they grow, on one device, with room for N nodes each.  Node 0 is the
/// root; a live node is one of the deepest level that may still get children.
struct GrowingTrees {
  // Per node; the entries of the root and those beyond the last node are undefined.
  at::Tensor ids;     // i64 [S, N] token of the node
  at::Tensor parent;  // i32 [S, N] number of the parent node
  at::Tensor score;   // fp32 [S, N] joint probability of the path to the node, or its logarithm (LevelRule)
  at::Tensor state;   // i32 [S, 10] a TreeState for each tree
  // What the drafter computes next, a column for each live node (one for each tree under
  // LevelRule::one_row_per_tree): the row of grow_level's `logits` that the node was guessed from, and the
  // node's token.
  // i64 [2, F], zeros beyond row_count; F >= S * max_live, or F >= S under LevelRule::one_row_per_tree.
  at::Tensor rows;
  at::Tensor row_count;  // i32 [1] columns in use
  // i32 [S, P, 3] P PlannedNodes for each tree: its fixed shape, and perhaps unused ones; undefined: no
  // plans.
  at::Tensor plans{};
};

/// Adds one level to all trees.  Without plans: the candidates of a tree's live nodes (LevelRule) become
/// nodes in the order of their scores, highest first, up to TreeState::max_nodes and the rule's limits; the
/// first `max_live` of them are live.  With plans: the next level of each tree's plan is added; its nodes
/// with children are live, whatever `max_live` is. G rows hold W guesses each; a guess's probability is
/// exp(logit - log_sum) in fp32, and 0 for NaN.
///   logits fp32 [G, W], best first; ids i64 [G, W] below 2^32 - 1; log_sums fp32 [G]; all contiguous
/// TreeState::guess_row must be below G, and ranks in a plan below W; a GPU checks neither.
void grow_level(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& log_sums,
                const LevelRule& rule, int64_t max_live, GrowingTrees& trees);

}  // namespace clover::kernels
