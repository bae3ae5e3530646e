#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace clover::data {

/// A token id and the byte range [begin, end) that it covers.
struct BpeSymbol {
  int32_t id;
  uint32_t begin, end;
};

/// The merge table of a byte-pair encoding.  `apply` repeatedly merges the adjacent pair of lowest rank, the
/// leftmost of equals, until no adjacent pair is in the table.
class BpeMerges {
 public:
  /// `count`: how many merges will be added.
  explicit BpeMerges(size_t count = 0);

  /// Adds the merge of tokens `left` and `right` (>= 0) into `result`.  A pair added twice has its later
  /// rank.
  void add(int32_t left, int32_t right, uint32_t rank, int32_t result);

  /// Merges symbols in place, in O(n log n).
  void apply(std::vector<BpeSymbol>& symbols) const;

  struct Merge {
    uint32_t rank;
    int32_t result;
  };
  /// The merge of a pair; its rank is no_rank when the pair is not in the table.
  Merge find(int32_t left, int32_t right) const;
  static constexpr uint32_t no_rank = UINT32_MAX;

 private:
  void apply_short(std::vector<BpeSymbol>& symbols) const;
  void apply_long(std::vector<BpeSymbol>& symbols) const;
  size_t slot_of(uint64_t pair) const;

  // Open addressing, at most half full: half of the time of encoding is spent on pairs that are not in the
  // table.
  struct Slot {
    uint64_t pair;
    Merge merge;
  };
  std::vector<Slot> slots_;
  int shift_;  // 64 - log2(slots)
};

}  // namespace clover::data
