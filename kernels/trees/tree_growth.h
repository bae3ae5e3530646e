#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/calls.h"

namespace clover::kernels {

/// Which guesses become children of a live node (docs/drafters/clover.md): its likeliest, `width` at most,
/// while their sum stays within top_p and none falls below its share of the best; the best itself whatever
/// its probability.
struct LevelRule {
  int64_t width = 1;
  float top_p = 1, relative_cut = 0;
  bool one_row_a_tree = false;  // one row guesses for all live nodes of a tree: the drafter is not regressive
};

/// Candidate trees of S sequences while they grow, on one device.
struct GrowingTrees {
  at::Tensor ids;     // i64 [S, N]; the root's and those behind the last node hold anything
  at::Tensor parent;  // i32 [S, N], the same
  at::Tensor joint;   // fp32 [S, N], the same: probability along the path
  at::Tensor state;   // i32 [S, 9], TreeStates
  // Of the next level: the row of the last one that each row continues, and the token that it does so with.
  at::Tensor rows;       // i64 [2, F], zeros behind the last one; F >= S, or S * most_live
  at::Tensor row_count;  // i32 [1]
};

/// One level of all trees: of all children of a tree's live nodes the likeliest become nodes, as many as
/// most_nodes leaves room for, in order of joint probability (ties of several parents' to the lowest id, then
/// to the first parent); the first `most_live` of them live.  Probabilities are exp(logit - log_sum) in fp32,
/// NaN 0.
///   logits fp32 [G, W], best first; ids i64 [G, W] below 2^32 - 1; log_sums fp32 [G]; all contiguous; rows
///   of guesses named in `trees` are below G, which a GPU does not check
void grow_level(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& log_sums,
                const LevelRule& rule, int64_t most_live, GrowingTrees& trees);

}  // namespace clover::kernels
