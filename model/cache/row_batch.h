#pragma once

#include <cstdint>
#include <vector>

namespace clover::model {

/// The rows of one pass, ragged: prefill chunks, decoding and trees alike.  Rows of one sequence are
/// neighbours; a parent comes before its children.
struct RowBatch {
  std::vector<int64_t> ids;       // [R] token of each row
  std::vector<int32_t> sequence;  // [R] sequence of the KvCache
  std::vector<int32_t>
      parent;  // [R] row of this batch it continues, or -1: the sequence's last committed token
  std::vector<int64_t> wanted;  // [W] rows whose logits are wanted, ascending
  bool best_only = false;       // their arg-max is wanted instead of the logits

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
  void add(int64_t id, int32_t of_sequence, int32_t of_parent) {
    ids.push_back(id);
    sequence.push_back(of_sequence);
    parent.push_back(of_parent);
  }
};

/// Rows of one sequence at positions begin .. begin + count - 1, which have slots in the cache: a drafter's
/// input.
struct Segment {
  int32_t sequence;
  int32_t begin;
  int32_t count;
};

}  // namespace clover::model
