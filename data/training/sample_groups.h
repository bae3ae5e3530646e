#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace clover::data {

/// What decides the group of a sample (see SampleGroups).
struct SampleOrigin {
  /// Samples with the same prompt are in one group.  "": the sample has no prompt, and only full_text counts.
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

  /// For each sample, in the order of `add`, the key of its group: a hash that all samples of the group have.
  std::vector<uint64_t> keys() const;

 private:
  // One element for each sample:
  std::vector<uint64_t> prompt_hashes_;
  std::vector<uint64_t> full_text_hashes_;   // 0: it has none
  std::vector<std::string> searched_texts_;  // a text that may begin with the full text of another; "": none
};

/// For each sample 1 if it is held out, else 0.  `keys`: as `SampleGroups::keys`.  Whole groups are held out,
/// in the order of their keys, as many as fit in `share` of the samples (0 <= share < 1).  If none fits,
/// share is above 0 and there are two groups or more, the smallest group is held out.
std::vector<uint8_t> held_out_samples(const std::vector<uint64_t>& keys, double share);

}  // namespace clover::data
