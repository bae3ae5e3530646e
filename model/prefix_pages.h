#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace clover::model {

/// Full pages of the cache whose tokens are known, so that a sequence that begins alike uses them instead of
/// computing them again.  A page stands for its tokens and all before them: it is known by the page in front
/// of it and its own tokens, compared one by one.
class PrefixPages {
 public:
  explicit PrefixPages(int64_t page_size) : page_size_(page_size) {}

  /// The pages that hold the beginning of `ids`, as far as it is known.  No use is counted.
  std::vector<int32_t> find(std::span<const int64_t> ids) const;

  /// Notes that `page` holds `tokens` (page_size of them) behind page `parent`, -1 at a beginning, and counts
  /// one use of it.  False, and nothing noted, when another page is known for the same.
  bool add(int32_t parent, std::span<const int64_t> tokens, int32_t page);

  /// One sequence more, or fewer, uses the page.  Whoever uses a page uses its parents; the last page of a
  /// chain is to be released first.
  void use(int32_t page);
  void release(int32_t page);

  int64_t used() const { return static_cast<int64_t>(pages_.size() - idle_.size()); }
  int64_t idle() const { return static_cast<int64_t>(idle_.size()); }  // known, used by nobody

  /// Forgets the page that has been idle the longest and returns it; idle() must not be 0.  Pages behind it
  /// were forgotten before: they are released earlier and used later.
  int32_t evict();

 private:
  using Key = std::pair<int32_t, std::vector<int64_t>>;  // parent, tokens
  struct Page {
    std::map<Key, int32_t>::iterator place;
    int64_t users;
    int64_t idle_since;
  };
  int64_t page_size_;
  int64_t clock_ = 0;
  std::map<Key, int32_t> known_;
  std::unordered_map<int32_t, Page> pages_;
  std::map<int64_t, int32_t> idle_;  // by idle_since
};

}  // namespace clover::model
