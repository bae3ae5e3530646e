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
constexpr size_t min_full_text_bytes = 16;  // bytes

/// Mixes the high bits, which FNV leaves poorly mixed for short inputs and which decide the order of groups.
uint64_t mixed(uint64_t hash) {
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdull;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53ull;
  return hash ^ hash >> 33;
}

std::string_view without_trailing_space(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

/// Samples by the hash of their full text.
class FullTextIndex {
 public:
  void add(uint64_t hash, size_t sample) {
    first_.emplace(hash, sample);
    seen_->set(hash % bits);
  }

  /// A sample whose full text has this hash, or -1.
  int64_t find(uint64_t hash) const {
    if (!seen_->test(hash % bits)) return -1;  // true for nearly all look-ups
    const auto found = first_.find(hash);
    return found == first_.end() ? -1 : static_cast<int64_t>(found->second);
  }

 private:
  static constexpr size_t bits = size_t{1} << 24;
  std::unordered_map<uint64_t, size_t> first_;
  std::unique_ptr<std::bitset<bits>> seen_ = std::make_unique<std::bitset<bits>>();
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
  std::unordered_map<uint64_t, size_t> first_of_prompt;
  FullTextIndex full_texts;
  for (size_t i = 0; i < count; ++i) {
    sets.join(i, first_of_prompt.emplace(prompt_hashes_[i], i).first->second);
    if (full_text_hashes_[i] != 0) full_texts.add(full_text_hashes_[i], i);
  }
  for (size_t i = 0; i < count; ++i) {
    uint64_t hash = fnv1a_offset_basis;
    for (const char& byte : searched_texts_[i]) {
      hash = fnv1a({&byte, 1}, hash);
      if (const int64_t begins = full_texts.find(hash); begins >= 0)
        sets.join(i, static_cast<size_t>(begins));
    }
  }
  std::unordered_map<size_t, uint64_t> smallest;
  for (size_t i = 0; i < count; ++i) {
    uint64_t& key = smallest.emplace(sets.root(i), UINT64_MAX).first->second;
    key = std::min(key, mixed(prompt_hashes_[i]));
  }
  std::vector<uint64_t> keys(count);
  for (size_t i = 0; i < count; ++i) keys[i] = smallest[sets.root(i)];
  return keys;
}

std::vector<uint8_t> held_out_samples(const std::vector<uint64_t>& keys, double share) {
  std::vector<uint8_t> held_out(keys.size(), 0);
  std::vector<uint64_t> sorted = keys;
  std::ranges::sort(sorted);
  const double wanted = share * static_cast<double>(keys.size());
  std::unordered_map<uint64_t, bool> chosen;
  int64_t taken = 0, smallest = INT64_MAX;
  uint64_t smallest_key = 0;
  for (auto begin = sorted.begin(); begin != sorted.end();) {
    const auto end = std::find_if(begin, sorted.end(), [&](uint64_t key) { return key != *begin; });
    const int64_t size = end - begin;
    if (size < smallest) smallest = size, smallest_key = *begin;
    const bool fits = static_cast<double>(taken + size) <= wanted;
    if (fits) taken += size;
    chosen[*begin] = fits;
    begin = end;
  }
  if (share > 0 && taken == 0 && chosen.size() > 1) chosen[smallest_key] = true;
  for (size_t i = 0; i < keys.size(); ++i) held_out[i] = chosen[keys[i]];
  return held_out;
}

}  // namespace clover::data
