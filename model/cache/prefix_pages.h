#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace clover::model {

/// Index of published pages, for prefix caching: a sequence that begins with the same tokens need not compute
/// them again.  A page stands for its tokens and all before them; its key is the page before it and its own
/// tokens, which are compared one by one.  Full pages are shared.  Of a page whose first tokens agree, full
/// or not, these first rows can be copied (copy on write).
class PrefixPages {
 public:
  explicit PrefixPages(int64_t page_size) : page_size_(page_size) {}

  /// The full pages that hold the longest published beginning of `ids`.  Counts no use.
  std::vector<int32_t> find(std::span<const int64_t> ids) const;

  /// The page behind `parent` that agrees longest with `ids`, and how many of its rows can be copied: those
  /// that hold the same token and are followed by the same one, because a drafter's rows depend on both.
  struct PartialMatch {
    int32_t page = -1;
    int64_t rows = 0;
  };
  PartialMatch find_partial(int32_t parent, std::span<const int64_t> ids) const;

  /// Notes that `page` holds `tokens` (at most page_size of them, in its first rows) behind page `parent`, -1
  /// at a beginning, and counts one use of it.  False, and nothing noted, when another page is known for the
  /// same.
  bool add(int32_t parent, std::span<const int64_t> tokens, int32_t page);

  /// One sequence more, or fewer, uses the page.  Who uses a page uses its parents, and releases it before
  /// them.
  void use(int32_t page);
  void release(int32_t page);
  /// Removes the page, which is not full and not idle, from the index.
  void forget(int32_t page);

  /// Full pages that a sequence uses.
  int64_t used() const { return full(pages_.size(), parts_) - full(idle_.size(), idle_parts_.size()); }
  int64_t idle() const { return static_cast<int64_t>(idle_.size()); }  // published, used by no sequence
  int64_t idle_parts() const { return static_cast<int64_t>(idle_parts_.size()); }  // of these, not full

  /// Evicts the least recently used idle page, or one that is not full, and returns it; idle() or
  /// idle_parts() must not be 0.  Pages behind it were evicted before it, because they are released earlier.
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
