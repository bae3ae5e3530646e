#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace clover::infer {

/// Where a guess comes from: the drafter's heads, or a copy from earlier text (SuffixMatcher).
enum class Proposer : uint8_t { heads, suffix };

/// The guesses for one sequence in one step: N nodes, one token each.  Node 0 is the root: the last accepted
/// token, which the target reads in this step.  A parent comes before its children; siblings hold different
/// tokens.
struct CandidateTree {
  std::vector<int64_t> ids;                 // [N] tokens
  std::vector<int32_t> parent;              // [N] node, -1 for the root
  std::vector<int32_t> depth;               // [N] distance from the root, 0 for the root
  std::vector<float> proposed_probability;  // [N] joint, from the root to the node; 1 for the root
  std::vector<Proposer> proposer;           // [N] who guessed the node and its probability

  /// The tree of a root alone.
  static CandidateTree of_root(int64_t id) { return {{id}, {-1}, {0}, {1.0f}, {Proposer::heads}}; }
  /// The child of `node` that holds `id`, -1 when there is none.
  int32_t child(int32_t node, int64_t id) const {
    for (int32_t i = node + 1; i < size(); ++i)
      if (parent[i] == node && ids[i] == id) return i;
    return -1;
  }
  /// The tree of the root and the nodes that follow it with these ids, up to the first id without a node.
  CandidateTree path_along(std::span<const int64_t> following_ids) const {
    CandidateTree path = of_root(ids[0]);
    int32_t node = 0;
    for (const int64_t id : following_ids) {
      node = child(node, id);
      if (node < 0) break;
      path.add(id, static_cast<int32_t>(path.size()) - 1, proposed_probability[node], proposer[node]);
    }
    return path;
  }
  void reserve(int64_t nodes) {
    ids.reserve(nodes);
    parent.reserve(nodes);
    depth.reserve(nodes);
    proposed_probability.reserve(nodes);
    proposer.reserve(nodes);
  }
  int64_t size() const { return static_cast<int64_t>(ids.size()); }
  /// Adds a child of node `parent_node`; returns its index.
  int32_t add(int64_t id, int32_t parent_node, float probability, Proposer from = Proposer::heads) {
    ids.push_back(id);
    parent.push_back(parent_node);
    depth.push_back(depth[parent_node] + 1);
    proposed_probability.push_back(probability);
    proposer.push_back(from);
    return static_cast<int32_t>(ids.size()) - 1;
  }
};

}  // namespace clover::infer
