#pragma once

#include <cstdint>
#include <vector>

namespace clover::model {

/// The R rows of one pass: prefill chunks, single decoded tokens and candidate trees of several sequences,
/// without padding.  Rows of one sequence are adjacent, and a parent comes before its children.
struct RowBatch {
  std::vector<int64_t> ids;          // [R] token of each row
  std::vector<int32_t> sequence;     // [R] number of the row's sequence in the KvCache
  std::vector<int32_t> parent;       // [R] the row of this batch that it continues; -1: it continues the
                                     // sequence's last committed token
  std::vector<int64_t> wanted_rows;  // [W] rows whose logits are wanted, ascending
  bool arg_max_only = false;         // only the arg max of these logits is wanted

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
  void add(int64_t id, int32_t of_sequence, int32_t of_parent) {
    ids.push_back(id);
    sequence.push_back(of_sequence);
    parent.push_back(of_parent);
  }
};

/// Rows of one sequence at positions begin .. begin + count - 1, for a drafter to read.  The cache has slots
/// for them already.
struct Segment {
  int32_t sequence;
  int32_t begin;
  int32_t count;
};

}  // namespace clover::model
