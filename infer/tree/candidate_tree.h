#pragma once

#include <cstdint>
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
