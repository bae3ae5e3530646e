#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace clover::train {

/// The sum of leaf(i), tensors of one shape, over [begin, end): of its first half and its second, each summed
/// the same way; undefined leaves count for nothing.  What several processes sum of their `share_of` it, and
/// then of each other, is the same bits, because the tree is the same.  A leaf's memory is taken over.
template <class Leaf>
at::Tensor tree_sum(int64_t begin, int64_t end, const Leaf& leaf) {
  if (begin == end) return {};
  if (end - begin == 1) return leaf(begin);
  const int64_t middle = begin + (end - begin) / 2;
  at::Tensor first = tree_sum(begin, middle, leaf), second = tree_sum(middle, end, leaf);
  if (!first.defined() || !second.defined()) return first.defined() ? first : second;
  return first.add_(second);
}

/// The part [begin, end) of `count` leaves that process `rank` of `ranks`, a power of two, sums: a subtree,
/// or nothing where there are more processes than leaves.
inline std::pair<int64_t, int64_t> share_of(int64_t count, int64_t rank, int64_t ranks) {
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
