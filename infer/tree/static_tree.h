#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace clover::infer {

/// A tree whose shape is fixed in advance: node i holds the rank[i]-th best child (0 = best) of node
/// parent[i]. Node 0 is the root.  Nodes are sorted by depth, then by their path's ranks, so that siblings
/// are neighbours.
struct StaticTree {
  std::vector<int32_t> parent;  // [N], -1 for the root
  std::vector<int32_t> rank;    // [N], 0 for the root
  std::vector<int32_t> depth;   // [N], 0 for the root

  int64_t size() const { return static_cast<int64_t>(parent.size()); }

  /// From the paths of its nodes, root excluded, in any order: "021" is the second child of the third child
  /// of the root's best.  InputError when a path is empty, repeated or not made of digits, or lacks its
  /// prefix.
  static StaticTree of_paths(std::span<const std::string_view> paths);

  /// The subtree of at most `budget` nodes (root excluded) with the most accepted guesses to be expected,
  /// among nodes no deeper than `max_depth` and of a rank below `width`.
  StaticTree cut(int64_t budget, int64_t max_depth, int64_t width) const;
};

/// The tree that Medusa and Hydra ship: 63 nodes besides the root, 10, 28, 23 and 2 at depths 1 to 4.
const StaticTree& medusa_tree();

/// Probability that the child of `rank` of an accepted node at `depth` (0: the root) is the target's token.
/// Medusa's published accuracies of Vicuna-7B: the best guess of heads 0 to 4 is right in 56.0, 31.6, 20.1,
/// 14.7 and 11.8 % of positions, one of the best five in 78.0, 56.3, 41.7, 34.0 and 30.0 %.  Other ranks
/// follow the power law a(r) = a(0) * (r + 1)^-s through both figures.  Depths beyond the last head repeat
/// it.
double medusa_accuracy(int64_t depth, int64_t rank);

}  // namespace clover::infer
