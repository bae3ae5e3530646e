#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/tree/candidate_tree.h"
#include "infer/tree/growth_policies.h"
#include "model/graphs/draft_runner.h"

namespace clover::infer {

/// A growth policy and its parameters (docs/inference.md).
struct GrowthRule {
  Policy policy = default_policy;
  double top_p = 0.8;          // children are kept while their cumulative probability stays within
  double relative_cut = 0.25;  // children below this share of the best one's probability are dropped
  double least_joint = 0.03;   // GrowthPolicy::drops_improbable: nodes of a lower joint probability are
                               // dropped; so a level has at most 1 / least_joint nodes
  int64_t width = 0;           // of a policy with a width; 0: GrowthPolicy::default_width
  int64_t depth = 0;  // of the trees, at most the drafter's; 0: as deep as the drafter is trained for
};

/// The width of a policy that has one; else 0.
int64_t width_of(const GrowthRule& rule);

/// The cuts that are made: the policy's own or, without these, the rule's.
ChildCuts cuts_of(const GrowthRule& rule);

/// How deep trees are that no limit of a sequence cuts.
int64_t depth_of(const GrowthRule& rule, const model::Drafter& drafter);

/// What one sequence may grow: at most `budget` nodes besides the root, none deeper than `max_depth` (limits
/// of context and max-tokens).
struct GrowthLimit {
  int64_t budget;
  int64_t max_depth;
};

/// model::max_guesses_written of one tree.
int64_t max_guesses_written(const GrowthRule& rule, const model::Drafter& drafter, int64_t budget);

/// Grows one tree a sequence, whose root is the token after its last row of `input`, which has a segment of
/// one row or more for each; the drafter reads all of it.  All nodes of a level of all trees go through a
/// head in one product.  Probabilities are the softmax at temperature 1 over the drafter's vocabulary or
/// GrowthPolicy::softmax_over guesses; kernels::LevelRule says how ties are broken.  A sequence with budget 0
/// gets a bare root.  What CPU and GPU share of a level is in kernels/trees/tree_growth_call.h.
std::vector<CandidateTree> grow(model::DraftRunner& draft, const model::DraftInput& input,
                                const GrowthRule& rule, std::span<const GrowthLimit> limits);

/// Begins on a GPU to grow one tree for each of `limits`, of one node or more besides the root, behind a pass
/// that nobody has verified yet (DraftRunner::begin).
void begin_growing(model::DraftRunner& draft, const model::UnverifiedTrees& unverified,
                   const model::DraftInput& input, const GrowthRule& rule,
                   std::span<const GrowthLimit> limits);

/// Adds the nodes of the grown tree number `index` to `tree`, a bare root, down to `max_depth`.
void add_nodes(const kernels::GrowingTrees& grown, int64_t index, int64_t max_depth, CandidateTree& tree);

}  // namespace clover::infer
