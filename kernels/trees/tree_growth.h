#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/trees/tree_growth_call.h"

// Growing candidate trees level by level.  The rule itself, which the CPU and the GPU share, is in
// tree_growth_call.h; the policies that call it are in infer/tree/grow.h.
namespace clover::kernels {

/// Which guesses become children of a live node (docs/drafters/clover.md): the most probable ones, at most
/// `width`, as long as their probabilities sum to at most `top_p` and each is at least `relative_cut` times
/// the best one's.  The best guess itself always becomes a child.
struct LevelRule {
  int64_t width = 1;
  float top_p = 1, relative_cut = 0;
  // All live nodes of a tree share one row of guesses, because the drafter does not condition on the tokens
  // drafted before (Medusa).
  bool one_row_a_tree = false;
};

/// Candidate trees of S sequences while they grow, on one device, with room for N nodes each.
struct GrowingTrees {
  at::Tensor
      ids;  // i64 [S, N] token of each node; the root's entry and those behind the last node are undefined
  at::Tensor parent;  // i32 [S, N] number of the parent node, likewise
  at::Tensor joint;   // fp32 [S, N] product of the probabilities along the path, likewise
  at::Tensor state;   // i32 [S, 9] a TreeState for each tree
  // What the drafter computes next, one row for each live node (or tree): the row of the last level that it
  // continues, and the token that it is given.
  at::Tensor rows;       // i64 [2, F], zeros behind the last row; F >= S, or S * most_live
  at::Tensor row_count;  // i32 [1] rows in use
};

/// Adds one level to all trees.  Of all children of a tree's live nodes the most probable become nodes, as
/// many as most_nodes leaves room for, in order of joint probability (ties: the lowest id, then the first
/// parent); the first `most_live` of them are live.  A guess's probability is exp(logit - log_sum) in fp32,
/// that of NaN 0.
///   logits fp32 [G, W], best first; ids i64 [G, W] below 2^32 - 1; log_sums fp32 [G]; all contiguous
/// The rows of guesses named in `trees` are below G, which a GPU does not check.
void grow_level(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& log_sums,
                const LevelRule& rule, int64_t most_live, GrowingTrees& trees);

}  // namespace clover::kernels
