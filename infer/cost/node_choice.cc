#include "infer/cost/node_choice.h"

#include <algorithm>
#include <numeric>

namespace clover::infer {
namespace {

// Nodes are verified if the step's expected tokens per second rise by at least this factor.  Costs and
// acceptance are known to a few percent only, so a smaller gain may be a loss.
constexpr double min_gain = 1.04;

// The root and the nodes of `tree` that `keep` [N] marks, in their order.
CandidateTree pruned_tree(const CandidateTree& tree, const std::vector<char>& keep) {
  CandidateTree kept = CandidateTree::of_root(tree.ids[0]);
  std::vector<int32_t> new_index(tree.size(), 0);
  for (int32_t i = 1; i < tree.size(); ++i)
    if (keep[i])
      new_index[i] =
          kept.add(tree.ids[i], new_index[tree.parent[i]], tree.proposed_probability[i], tree.proposer[i]);
  return kept;
}

}  // namespace

int64_t attended_by_roots(std::span<const int64_t> context_lengths) {
  return std::accumulate(context_lengths.begin(), context_lengths.end(), int64_t{0});
}

std::vector<double> row_costs(const PassCost& passes, std::span<const int64_t> context_lengths) {
  const int64_t sequences = std::ssize(context_lengths), attended_tokens = attended_by_roots(context_lengths);
  const double plain = passes.expected_seconds(sequences, attended_tokens);
  std::vector<double> costs;
  for (const int64_t context_length : context_lengths) {
    const double added =
        passes.expected_seconds(2 * sequences, attended_tokens + sequences * context_length) - plain;
    costs.push_back(std::max(added / static_cast<double>(sequences), 1e-9 * plain + 1e-12));  // above 0
  }
  return costs;
}

std::vector<RankedNode> rank_nodes(const std::vector<CandidateTree>& trees, std::span<const double> costs,
                                   const std::function<double(float, Proposer)>& calibrated_probability) {
  std::vector<RankedNode> nodes;
  for (int32_t t = 0; t < std::ssize(trees); ++t) {
    const CandidateTree& tree = trees[t];
    std::vector<double> expected(tree.size(), 1.0);  // of each node's acceptance
    for (int32_t i = 1; i < tree.size(); ++i) {
      expected[i] = std::min(calibrated_probability(tree.proposed_probability[i], tree.proposer[i]),
                             expected[tree.parent[i]]);
      nodes.push_back({expected[i], t, i, tree.depth[i], tree.proposer[i]});
    }
  }
  // A child expects no more than its parent and the sort is stable, so parents come first.
  std::stable_sort(nodes.begin(), nodes.end(), [&costs](const RankedNode& a, const RankedNode& b) {
    return a.expected * costs[b.tree] > b.expected * costs[a.tree];
  });
  return nodes;
}

NodeChoice best_choice(const PassCost& passes, std::span<const RankedNode> nodes,
                       std::span<const int64_t> context_lengths, double drafting_seconds) {
  int64_t rows = std::ssize(context_lengths), attended_tokens = attended_by_roots(context_lengths);
  double tokens = static_cast<double>(rows);
  const NodeChoice none{0, tokens, passes.expected_seconds(rows, attended_tokens) + drafting_seconds};
  NodeChoice best = none;
  for (size_t n = 0; n < nodes.size(); ++n) {
    tokens += nodes[n].expected;
    attended_tokens += context_lengths[nodes[n].tree];
    const NodeChoice choice{n + 1, tokens,
                            passes.expected_seconds(++rows, attended_tokens) + drafting_seconds};
    if (choice.rate() > best.rate()) best = choice;
  }
  best.gain = best.rate() / none.rate();
  return best.gain > min_gain ? best : none;
}

void prune(std::vector<CandidateTree>& trees, std::span<const RankedNode> kept) {
  std::vector<std::vector<char>> keep;
  for (const CandidateTree& tree : trees) keep.emplace_back(tree.size(), 0);
  for (const RankedNode& node : kept) keep[node.tree][node.node] = 1;
  for (size_t t = 0; t < trees.size(); ++t) trees[t] = pruned_tree(trees[t], keep[t]);
}

}  // namespace clover::infer
