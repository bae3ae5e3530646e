#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace clover::data {

/// What a sample's text begins with, to tell which samples belong together.
struct SampleOrigin {
  /// Samples of one prompt belong together; "": it has none, and only the whole counts.
  std::string prompt{};
  /// Prompt and answer of a text, "" for a conversation of messages, whose prompt is how it begins: a sample
  /// whose prompt begins with another's whole continues it.
  std::string whole{};
};

/// Groups of samples that must not be parted: they answer one prompt, or are lines of one conversation.  The
/// order in which they come is of no matter.
class SampleGroups {
 public:
  void add(SampleOrigin origin);

  /// Of each sample, in the order they came, the number of its group's; equal for samples of one group.
  std::vector<uint64_t> keys() const;

 private:
  std::vector<uint64_t> prompts_;   // hashes, one a sample
  std::vector<std::string> texts_;  // in which the wholes of others are looked for; "" where there are none
  std::vector<uint64_t> wholes_;    // hashes; 0: none
};

/// Which samples to hold out: whole groups, chosen by their keys alone, as many as fit in `share` of the
/// samples, 0 <= share < 1; at least one group where there are two or more and share > 0.
std::vector<uint8_t> held_out_samples(const std::vector<uint64_t>& keys, double share);

}  // namespace clover::data
