#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace clover::data {

/// A token and the bytes [begin, end) of its text.
struct BpeSymbol {
  int32_t id;
  uint32_t begin, end;
};

/// The merge table of a byte-pair encoding, and its one algorithm: again and again merge the pair of lowest
/// rank, the leftmost of equals, until no neighbours are in the table.
class BpeMerges {
 public:
  /// `count`: number of merges to come.
  explicit BpeMerges(size_t count = 0);

  /// left, right >= 0.  A pair given twice takes the later rank.
  void add(int32_t left, int32_t right, uint32_t rank, int32_t result);

  /// Merges in place; O(n log n) in the number of symbols.
  void apply(std::vector<BpeSymbol>& symbols) const;

  struct Merge {
    uint32_t rank;
    int32_t result;
  };
  /// no_rank when the pair is not in the table.
  Merge find(int32_t left, int32_t right) const;
  static constexpr uint32_t no_rank = UINT32_MAX;

 private:
  void apply_short(std::vector<BpeSymbol>& symbols) const;
  void apply_long(std::vector<BpeSymbol>& symbols) const;
  size_t slot_of(uint64_t pair) const;

  // Open addressing, at most half full: half of encoding is looking up pairs that are not there.
  struct Slot {
    uint64_t pair;
    Merge merge;
  };
  std::vector<Slot> slots_;
  int shift_;  // 64 - log2(slots)
};

}  // namespace clover::data
