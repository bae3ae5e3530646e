#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace clover::infer {

/// A tree of N nodes whose shape is fixed in advance.  Node i is the guess of rank[i] (0: the most probable)
/// after node parent[i].  Node 0 is the root.  Nodes are sorted by depth, then by the ranks along their path,
/// so siblings are adjacent.
struct StaticTree {
  std::vector<int32_t> parent;  // [N], -1 for the root
  std::vector<int32_t> rank;    // [N], 0 for the root
  std::vector<int32_t> depth;   // [N], 0 for the root

  int64_t size() const { return static_cast<int64_t>(parent.size()); }

  /// The tree of these nodes and the root.  A node is written as its path, the ranks from depth 1 down to it:
  /// "021" is the node of rank 1 below the node of rank 2 below the root's best child.  Paths come in any
  /// order. InputError when a path is empty, is given twice, is not made of digits, or its parent is missing.
  static StaticTree of_paths(std::span<const std::string_view> paths);

  /// The subtree of at most `budget` nodes (root excluded) with the largest expected number of accepted
  /// guesses (medusa_accuracy), among nodes no deeper than `max_depth` and of ranks below `width`.
  StaticTree cut(int64_t budget, int64_t max_depth, int64_t width) const;
};

/// The tree that Medusa and Hydra ship: 63 nodes besides the root, 10, 28, 23 and 2 of them at depths 1 to 4.
const StaticTree& medusa_tree();

/// Probability that the child of rank `rank` of an accepted node at `depth` (0: the root) is the target's
/// token, from the accuracies of Medusa's heads on Vicuna-7B in its paper:
///   head          0     1     2     3     4
///   best guess    56.0  31.6  20.1  14.7  11.8 % of positions
///   best 5        78.0  56.3  41.7  34.0  30.0 %
/// The accuracies of the other ranks r follow the power law a(r) = a(0) * (r + 1)^-s.  Each head has its own
/// s, fitted to its two figures.  Greater depths have the accuracies of head 4.
double medusa_accuracy(int64_t depth, int64_t rank);

}  // namespace clover::infer
