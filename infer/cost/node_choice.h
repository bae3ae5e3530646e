#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "infer/cost/pass_cost.h"
#include "infer/tree/candidate_tree.h"

namespace clover::infer {

/// A node of one of the trees of a batch.
struct RankedNode {
  double expected;  // probability that it is accepted
  int32_t tree, node, depth;
  Proposer proposer;
};

/// Tokens that a pass of one row a sequence attends to: the sum of the lengths.
int64_t attended_by_roots(std::span<const int64_t> context_lengths);

/// [S] for each sequence the seconds that one more row in its tree adds to a pass, above 0.  A pass of one
/// row a sequence is compared with one of twice the rows, where all added rows attend to that sequence's
/// context.
std::vector<double> row_costs(const PassCost& passes, std::span<const int64_t> context_lengths);

/// All nodes except roots, ranked by expected acceptance per second that their row adds to the pass
/// (`costs`: row_costs), a parent before its children.  No node is expected more often than its parent.
std::vector<RankedNode> rank_nodes(const std::vector<CandidateTree>& trees, std::span<const double> costs,
                                   const std::function<double(float, Proposer)>& calibrated_probability);

/// The choice of the first `nodes` ranked nodes.
struct NodeChoice {
  size_t nodes = 0;
  double tokens = 0, seconds = 1;  // expected of the step
  double gain = 1;                 // tokens per second with the nodes / without
  double rate() const { return tokens / seconds; }
};

/// How many of the ranked nodes, from the first, give the most expected tokens per second; none where that
/// gains less than 4 %.  `drafting_seconds` are spent in any case.
NodeChoice best_choice(const PassCost& passes, std::span<const RankedNode> nodes,
                       std::span<const int64_t> context_lengths, double drafting_seconds);

/// Cuts every tree to its root and the `kept` nodes, which include the parents of each.
void prune(std::vector<CandidateTree>& trees, std::span<const RankedNode> kept);

}  // namespace clover::infer
