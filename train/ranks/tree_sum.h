#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace clover::train {

/// The sum of leaf(i), tensors of one shape, over [begin, end), as a binary tree: the sum of the first half
/// plus the sum of the second.  Undefined leaves are skipped.  When several processes each sum their
/// `rank_share`, and the results are summed the same way, the tree and so the bits are the same.  The sum
/// reuses the memory of leaves.
template <class Leaf>
at::Tensor tree_sum(int64_t begin, int64_t end, const Leaf& leaf) {
  if (begin == end) return {};
  if (end - begin == 1) return leaf(begin);
  const int64_t middle = begin + (end - begin) / 2;
  at::Tensor first = tree_sum(begin, middle, leaf), second = tree_sum(middle, end, leaf);
  if (!first.defined() || !second.defined()) return first.defined() ? first : second;
  return first.add_(second);
}

/// The range [begin, end) of `count` leaves that process `rank` of `ranks` (a power of two) sums: a subtree
/// of tree_sum; empty when there are more processes than leaves.
inline std::pair<int64_t, int64_t> rank_share(int64_t count, int64_t rank, int64_t ranks) {
  int64_t begin = 0, end = count;
  for (; ranks > 1; ranks /= 2) {
    const int64_t middle = begin + (end - begin) / 2;
    if (rank < ranks / 2) {
      end = middle;
    } else {
      begin = middle;
      rank -= ranks / 2;
    }
  }
  return {begin, end};
}

}  // namespace clover::train
