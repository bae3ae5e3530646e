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
  // Cuts of a node's children, for policies without GrowthPolicy::own_cuts; see ChildCuts.
  double top_p = 0.8;
  double relative_cut = 0.25;
  // For policies with GrowthPolicy::drops_improbable: nodes of a lower joint probability are dropped, so a
  // level has at most 1 / min_joint_probability nodes.
  double min_joint_probability = 0.03;
  // For policies with a width: guesses of a live node, and live nodes of a level; 0:
  // GrowthPolicy::default_width.
  int64_t width = 0;
  int64_t depth = 0;  // of the trees, no more than the drafter can guess; 0: the depth it is trained for
};

/// The width of the rule's policy; 0 for a policy without a width.
int64_t width_of(const GrowthRule& rule);

/// The cuts of children in force: the policy's own, or the rule's where the policy has none.
ChildCuts cuts_of(const GrowthRule& rule);

/// The depth of a tree that no GrowthLimit cuts short.
int64_t depth_of(const GrowthRule& rule, const model::Drafter& drafter);

/// The limits of one sequence's tree: at most `budget` nodes besides the root, none deeper than `max_depth`,
/// which follows from what context and max_tokens leave.
struct GrowthLimit {
  int64_t budget;
  int64_t max_depth;
};

/// The most guesses of one tree that a drafter writes to the cache (model/graphs/draft_runner.h).
int64_t max_guesses_written(const GrowthRule& rule, const model::Drafter& drafter, int64_t budget);

/// Grows one tree for each sequence.  `input` has a segment of one row or more for each sequence, and
/// `limits` one entry; the drafter reads all rows.  The root of a tree is the token after the last row of its
/// segment.  All live nodes of a level of all trees go through a head in one product.  Probabilities are the
/// softmax at temperature 1 over the drafter's vocabulary, or over the GrowthPolicy::softmax_over best
/// guesses; kernels::LevelRule says how ties are broken.  A sequence with budget 0 gets a root alone.  The
/// rule by which one level grows is in kernels/trees/tree_growth_call.h; CPU and GPU share it.
std::vector<CandidateTree> grow(model::DraftRunner& draft, const model::DraftInput& input,
                                const GrowthRule& rule, std::span<const GrowthLimit> limits);

/// Begins to grow trees on a GPU, one for each of `limits`, after a pass whose own trees the CPU has not
/// verified yet.  Each limit must allow one node besides the root.  DraftRunner::grow_ahead has the contract.
void begin_growing(model::DraftRunner& draft, const model::UnverifiedTrees& unverified,
                   const model::DraftInput& input, const GrowthRule& rule,
                   std::span<const GrowthLimit> limits);

/// Adds the nodes of tree `index` of `grown` to `tree`, which is a root alone, down to depth `max_depth`.
void add_nodes(const kernels::GrowingTrees& grown, int64_t index, int64_t max_depth, CandidateTree& tree);

}  // namespace clover::infer
