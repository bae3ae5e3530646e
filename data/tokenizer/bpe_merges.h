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

/// The merge table of a byte-pair encoding.  `apply` repeatedly merges the adjacent pair of lowest rank (of
/// equal ranks the leftmost pair), until no adjacent pair is in the table.
class BpeMerges {
 public:
  /// `count`: how many merges will be added.
  explicit BpeMerges(size_t count = 0);

  /// Adds the merge of tokens `left` and `right` (ids >= 0) into token `result`.  If a pair is added twice,
  /// the later call counts.
  void add(int32_t left, int32_t right, uint32_t rank, int32_t result);

  /// Merges symbols in place, in O(n log n) time.
  void apply(std::vector<BpeSymbol>& symbols) const;

  struct Merge {
    uint32_t rank;
    int32_t result;
  };
  /// The merge of a pair.  Its rank is no_rank when the pair is not in the table.
  Merge find(int32_t left, int32_t right) const;
  static constexpr uint32_t no_rank = UINT32_MAX;

 private:
  void apply_short(std::vector<BpeSymbol>& symbols) const;
  void apply_long(std::vector<BpeSymbol>& symbols) const;
  size_t slot_of(uint64_t pair) const;

  // A hash table with open addressing.  It is at most half full, so that a pair that is not in it is found
  // missing fast: half of the encoding time is spent on such pairs.
  struct Slot {
    uint64_t pair;  // left id in the upper 32 bits, right id in the lower
    Merge merge;
  };
  std::vector<Slot> slots_;
  int shift_;  // 64 - log2(slots)
};

}  // namespace clover::data
