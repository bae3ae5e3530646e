#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace clover::data {

/// What decides the group of a sample (see SampleGroups).
struct SampleOrigin {
  /// Samples with the same prompt are one group; "": the sample has no prompt, and only full_text counts.
  std::string prompt{};
  /// Prompt and answer of a plain-text sample; "" for a conversation.  A sample whose prompt begins with
  /// another sample's full text continues it and joins its group.
  std::string full_text{};
};

/// Groups of samples that must be in the same split, since they share a prompt or are turns of one
/// conversation; otherwise held-out prompts would be trained on.  The order of `add` does not matter.
class SampleGroups {
 public:
  void add(SampleOrigin origin);

  /// For each sample, in the order of `add`, the key of its group; samples have equal keys if they are in one
  /// group.
  std::vector<uint64_t> keys() const;

 private:
  std::vector<uint64_t> prompt_hashes_;  // one for each sample
  std::vector<std::string>
      searched_texts_;  // texts that may begin with another sample's full text; "": not searched
  std::vector<uint64_t> full_text_hashes_;  // 0: none
};

/// For each sample 1 if it is held out.  Whole groups are held out, in the order of their keys, as many as
/// fit in `share` of the samples (0 <= share < 1); at least one group when there are two or more and share >
/// 0.
std::vector<uint8_t> held_out_samples(const std::vector<uint64_t>& keys, double share);

}  // namespace clover::data
