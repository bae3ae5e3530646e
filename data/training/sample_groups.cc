#include "data/training/sample_groups.h"

#include <algorithm>
#include <bitset>
#include <memory>
#include <numeric>
#include <unordered_map>

#include "data/files/hash.h"

namespace clover::data {
namespace {

// Shorter texts are ignored: many unrelated texts begin with them.
constexpr size_t min_full_text_bytes = 16;

std::string_view without_trailing_space(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

/// Samples by the hash of their full text.
class FullTextIndex {
 public:
  void add(uint64_t hash, size_t sample) {
    sample_of_hash_.emplace(hash, sample);
    hash_bits_->set(hash % bits);
  }

  /// A sample whose full text has this hash, or -1.
  int64_t find(uint64_t hash) const {
    if (!hash_bits_->test(hash % bits)) return -1;  // true for nearly all look-ups
    const auto found = sample_of_hash_.find(hash);
    return found == sample_of_hash_.end() ? -1 : static_cast<int64_t>(found->second);
  }

 private:
  static constexpr size_t bits = size_t{1} << 24;
  std::unordered_map<uint64_t, size_t> sample_of_hash_;
  /// Bit hash % bits is set for every hash of the index: a quick test that most hashes are not in it.
  std::unique_ptr<std::bitset<bits>> hash_bits_ = std::make_unique<std::bitset<bits>>();
};

/// Disjoint sets (union-find) of 0 .. count-1.
class DisjointSets {
 public:
  explicit DisjointSets(size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
  }
  size_t root(size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(size_t a, size_t b) { parent_[root(a)] = root(b); }

 private:
  std::vector<size_t> parent_;
};

}  // namespace

void SampleGroups::add(SampleOrigin origin) {
  const std::string_view prompt = without_trailing_space(origin.prompt);
  const std::string_view full_text = without_trailing_space(origin.full_text);
  prompt_hashes_.push_back(fnv1a(prompt.empty() ? full_text : prompt));
  full_text_hashes_.push_back(full_text.size() < min_full_text_bytes ? 0 : fnv1a(full_text));
  std::string& text = prompt.empty() ? origin.full_text : origin.prompt;
  searched_texts_.push_back(full_text.empty() ? std::string() : std::move(text));
}

std::vector<uint64_t> SampleGroups::keys() const {
  const size_t count = prompt_hashes_.size();
  DisjointSets sets(count);
  std::unordered_map<uint64_t, size_t> first_sample_of_prompt;
  FullTextIndex full_texts;
  for (size_t i = 0; i < count; ++i) {
    sets.join(i, first_sample_of_prompt.emplace(prompt_hashes_[i], i).first->second);
    if (full_text_hashes_[i] != 0) full_texts.add(full_text_hashes_[i], i);
  }
  for (size_t i = 0; i < count; ++i) {
    uint64_t hash = fnv1a_offset_basis;  // of the text up to `byte`
    for (const char& byte : searched_texts_[i]) {
      hash = fnv1a({&byte, 1}, hash);
      if (const int64_t prefix_sample = full_texts.find(hash); prefix_sample >= 0)
        sets.join(i, static_cast<size_t>(prefix_sample));
    }
  }
  std::unordered_map<size_t, uint64_t> smallest_keys;
  for (size_t i = 0; i < count; ++i) {
    uint64_t& key = smallest_keys.emplace(sets.root(i), UINT64_MAX).first->second;
    key = std::min(key, mix_bits(prompt_hashes_[i]));
  }
  std::vector<uint64_t> keys(count);
  for (size_t i = 0; i < count; ++i) keys[i] = smallest_keys[sets.root(i)];
  return keys;
}

std::vector<uint8_t> held_out_samples(const std::vector<uint64_t>& keys, double share) {
  std::vector<uint8_t> held_out(keys.size(), 0);
  std::vector<uint64_t> sorted = keys;
  std::ranges::sort(sorted);
  const double max_samples = share * static_cast<double>(keys.size());
  std::unordered_map<uint64_t, bool> is_held_out;          // by key
  int64_t held_out_count = 0, smallest_group = INT64_MAX;  // samples
  uint64_t smallest_group_key = 0;
  for (auto begin = sorted.begin(); begin != sorted.end();) {
    const auto end = std::find_if(begin, sorted.end(), [&](uint64_t key) { return key != *begin; });
    const int64_t size = end - begin;
    if (size < smallest_group) smallest_group = size, smallest_group_key = *begin;
    const bool fits = static_cast<double>(held_out_count + size) <= max_samples;
    if (fits) held_out_count += size;
    is_held_out[*begin] = fits;
    begin = end;
  }
  if (share > 0 && held_out_count == 0 && is_held_out.size() > 1) is_held_out[smallest_group_key] = true;
  for (size_t i = 0; i < keys.size(); ++i) held_out[i] = is_held_out[keys[i]];
  return held_out;
}

}  // namespace clover::data
