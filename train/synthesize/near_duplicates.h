#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace clover::train {

/// Texts that differ from each other.  Two texts are near-duplicates when they have at least 60 % of their
/// pairs of adjacent words in common (Jaccard index of the two sets; of one word alone, the word).  Texts to
/// compare with are found by MinHash (Broder, 1997), which misses about one near-duplicate in a hundred at
/// that limit and fewer above it.
class NearDuplicates {
 public:
  static constexpr double limit = 0.6;

  /// Adds the text and returns true, or returns false when it is a near-duplicate of one that was added.
  /// The case of ASCII letters, hyphens within words and most punctuation do not count; + - * / # = < > % ^
  /// do.
  bool add(std::string_view text);

 private:
  static constexpr int bands = 20,
                       rows = 3;        // of MinHash: texts that agree in all rows of a band are compared
  using Pairs = std::vector<uint64_t>;  // hashes of the pairs of words, ascending, each once

  std::vector<Pairs> texts_;
  std::array<std::unordered_multimap<uint64_t, size_t>, bands> texts_by_band_;  // indices into texts_
};

}  // namespace clover::train
