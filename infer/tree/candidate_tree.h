#pragma once

#include <cstdint>
#include <vector>

namespace clover::infer {

/// Who guessed a node.
enum class Proposer : uint8_t { heads, suffix };

/// Guesses for one sequence.  Node 0 is the root: the last token emitted, which the target has not read yet.
/// A parent comes before its children; siblings hold different tokens.
struct CandidateTree {
  std::vector<int64_t> ids;                 // [N]
  std::vector<int32_t> parent;              // [N], -1 for the root
  std::vector<int32_t> depth;               // [N], 0 for the root
  std::vector<float> proposed_probability;  // [N] joint along the path from the root, 1 for the root
  std::vector<Proposer> proposer;           // [N] who gave that probability

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
  int32_t add(int64_t id, int32_t of_parent, float probability, Proposer by = Proposer::heads) {
    ids.push_back(id);
    parent.push_back(of_parent);
    depth.push_back(depth[of_parent] + 1);
    proposed_probability.push_back(probability);
    proposer.push_back(by);
    return static_cast<int32_t>(ids.size()) - 1;
  }
};

}  // namespace clover::infer
