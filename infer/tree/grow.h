#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "infer/tree/candidate_tree.h"
#include "model/graphs/draft_graphs.h"

namespace clover::infer {

/// Growth policies by name.  `automatic` is chosen by the engine, step by step, out of the others.
enum class Policy { automatic, off, chain, fixed_tree, clover };

/// "auto" | "off" | "chain" | "static" | "clover"; InputError listing them otherwise (also for beam and
/// best-first, which are not built yet).
Policy parse_policy(const std::string& name);
std::string to_string(Policy policy);

/// How a tree is grown (docs/drafters/clover.md).
struct GrowthRule {
  Policy policy = Policy::clover;
  double top_p = 0.8;          // clover: children kept while their cumulative mass stays within
  double relative_cut = 0.25;  // clover: children below this share of their parent's best are dropped
  double least_joint = 0.03;   // automatic: nodes of a lower joint probability are dropped, even rank 0; it
                               // bounds a level to 1 / least_joint nodes where no budget does
};

/// What one sequence may grow: at most `budget` nodes besides the root, none deeper than `max_depth` (context
/// and max-token limits).
struct GrowthLimit {
  int64_t budget;
  int64_t max_depth;
};

/// Grows one tree a sequence, whose root is the token after its last row of `seen`; `seen` has a segment of
/// one row or more for each, in order, and the drafter has seen it all afterwards.  `automatic` grows like
/// `clover`, at most 16 children a node.  All live rows of the batch go through each head in one product;
/// probabilities are the softmax over the drafter's vocabulary at temperature 1; ties go to the lowest token
/// id.  A sequence with budget 0 gets a bare root.
std::vector<CandidateTree> grow(model::DraftGraphs& draft, const model::SeenRows& seen,
                                const GrowthRule& rule, std::span<const GrowthLimit> limits);

/// Begins to grow one tree for each of `limits`, of a node or more, on a GPU, behind rows that nobody has
/// followed yet (DraftGraphs::begin): chain, clover and automatic.
void begin_growing(model::DraftGraphs& draft, const model::JudgedRows& judged, const model::SeenRows& seen,
                   const GrowthRule& rule, std::span<const GrowthLimit> limits);

/// Adds the nodes of the grown tree number `index` to `tree`, a bare root, down to `max_depth`.
void take(const kernels::GrowingTrees& grown, int64_t index, int64_t max_depth, CandidateTree& tree);

}  // namespace clover::infer
