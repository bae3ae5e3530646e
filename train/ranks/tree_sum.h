#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace clover::train {

/// The sum of the tensors leaf(i) over i in [begin, end), added up as a binary tree: the sum of the first
/// half plus the sum of the second half.  All have one shape; undefined ones are skipped; the result is in
/// the memory of a leaf.  The order of additions, and so each bit, does not depend on the number of
/// processes: each process sums its `rank_share`, and tree_sum over the ranks adds these sums.
template <class Leaf>
at::Tensor tree_sum(int64_t begin, int64_t end, const Leaf& leaf) {
  if (begin == end) return {};
  if (end - begin == 1) return leaf(begin);
  const int64_t middle = begin + (end - begin) / 2;
  at::Tensor first = tree_sum(begin, middle, leaf), second = tree_sum(middle, end, leaf);
  if (!first.defined() || !second.defined()) return first.defined() ? first : second;
  return first.add_(second);
}

/// The range [begin, end) of the leaves 0 .. count-1 that process `rank` of `ranks` (a power of two) sums. It
/// is a subtree of tree_sum, and may be empty when there are more processes than leaves.
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
