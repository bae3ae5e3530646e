#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace clover::model {

/// Pages of the cache whose tokens are known, so that a sequence that begins alike need not compute them
/// again. A page stands for its tokens and all before them: it is known by the page in front of it and its
/// own tokens, compared one by one.  Full pages are used by all who begin so; of a page that agrees only at
/// first, full or not, the first rows can be copied.
class PrefixPages {
 public:
  explicit PrefixPages(int64_t page_size) : page_size_(page_size) {}

  /// The full pages that hold the beginning of `ids`, as far as it is known.  No use is counted.
  std::vector<int32_t> find(std::span<const int64_t> ids) const;

  /// Behind `parent`, the page that agrees longest with `ids`, and how many of its rows hold the same token
  /// with the same one behind it (a drafter may read both).
  struct Head {
    int32_t page = -1;
    int64_t rows = 0;
  };
  Head find_head(int32_t parent, std::span<const int64_t> ids) const;

  /// Notes that `page` holds `tokens` (at most page_size of them, in its first rows) behind page `parent`, -1
  /// at a beginning, and counts one use of it.  False, and nothing noted, when another page is known for the
  /// same.
  bool add(int32_t parent, std::span<const int64_t> tokens, int32_t page);

  /// One sequence more, or fewer, uses the page.  Whoever uses a page uses its parents; the last page of a
  /// chain is to be released first.
  void use(int32_t page);
  void release(int32_t page);
  /// The page, not a full one and not idle, is known no longer.
  void forget(int32_t page);

  /// Full pages that are used.
  int64_t used() const { return full(pages_.size(), parts_) - full(idle_.size(), idle_parts_.size()); }
  int64_t idle() const { return static_cast<int64_t>(idle_.size()); }              // known, used by nobody
  int64_t idle_parts() const { return static_cast<int64_t>(idle_parts_.size()); }  // of these not full

  /// Forgets the page, or the one that is not full, that has been idle the longest and returns it; idle() or
  /// idle_parts() must not be 0.  Pages behind it were forgotten before: they are released earlier and used
  /// later.
  int32_t evict() { return evict(idle_.begin()->second); }
  int32_t evict_part() { return evict(idle_parts_.begin()->second); }

 private:
  using Key = std::pair<int32_t, std::vector<int64_t>>;  // parent, tokens
  struct Page {
    std::map<Key, int32_t>::iterator place;
    int64_t users;
    int64_t idle_since;
  };
  static int64_t full(size_t all, size_t parts) { return static_cast<int64_t>(all - parts); }
  bool is_full(const Page& page) const { return std::ssize(page.place->first.second) == page_size_; }
  int32_t evict(int32_t page);

  int64_t page_size_;
  int64_t clock_ = 0;
  size_t parts_ = 0;  // pages that are not full
  std::map<Key, int32_t> known_;
  std::unordered_map<int32_t, Page> pages_;
  std::map<int64_t, int32_t> idle_, idle_parts_;  // by idle_since; all, and those that are not full
};

}  // namespace clover::model
