#include "data/training/sample_groups.h"

#include <algorithm>
#include <bitset>
#include <memory>
#include <numeric>
#include <unordered_map>

#include "data/files/hash.h"

namespace clover::data {
namespace {

// A shorter one is how much else begins.
constexpr size_t shortest_whole = 16;  // bytes

/// FNV leaves the high bits of short inputs poorly mixed, and the order of groups looks at these.
uint64_t mixed(uint64_t hash) {
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdull;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53ull;
  return hash ^ hash >> 33;
}

std::string_view without_space_behind(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
}

/// Samples by the hash of what they hold whole.
class Wholes {
 public:
  void add(uint64_t hash, size_t sample) {
    first_.emplace(hash, sample);
    seen_->set(hash % bits);
  }

  /// A sample whose whole hashes to this, or -1.
  int64_t find(uint64_t hash) const {
    if (!seen_->test(hash % bits)) return -1;  // which nearly every look-up ends with
    const auto found = first_.find(hash);
    return found == first_.end() ? -1 : static_cast<int64_t>(found->second);
  }

 private:
  static constexpr size_t bits = size_t{1} << 24;
  std::unordered_map<uint64_t, size_t> first_;
  std::unique_ptr<std::bitset<bits>> seen_ = std::make_unique<std::bitset<bits>>();
};

/// Union-find.
class Sets {
 public:
  explicit Sets(size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), size_t{0}); }
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
  const std::string_view prompt = without_space_behind(origin.prompt);
  const std::string_view whole = without_space_behind(origin.whole);
  prompts_.push_back(fnv1a(prompt.empty() ? whole : prompt));
  wholes_.push_back(whole.size() < shortest_whole ? 0 : fnv1a(whole));
  std::string& text = prompt.empty() ? origin.whole : origin.prompt;
  texts_.push_back(whole.empty() ? std::string() : std::move(text));
}

std::vector<uint64_t> SampleGroups::keys() const {
  const size_t count = prompts_.size();
  Sets sets(count);
  std::unordered_map<uint64_t, size_t> first_of_prompt;
  Wholes wholes;
  for (size_t i = 0; i < count; ++i) {
    sets.join(i, first_of_prompt.emplace(prompts_[i], i).first->second);
    if (wholes_[i] != 0) wholes.add(wholes_[i], i);
  }
  for (size_t i = 0; i < count; ++i) {
    uint64_t hash = fnv_start;
    for (const char& byte : texts_[i]) {
      hash = fnv1a({&byte, 1}, hash);
      if (const int64_t begins = wholes.find(hash); begins >= 0) sets.join(i, static_cast<size_t>(begins));
    }
  }
  std::unordered_map<size_t, uint64_t> smallest;
  for (size_t i = 0; i < count; ++i) {
    uint64_t& key = smallest.emplace(sets.root(i), UINT64_MAX).first->second;
    key = std::min(key, mixed(prompts_[i]));
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
