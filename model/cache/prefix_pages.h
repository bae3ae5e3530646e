#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace clover::model {

/// Index of published pages, for prefix caching: a sequence that begins with the same tokens need not compute
/// them again.  A page is found by its key: the page before it, called its parent, and its own tokens.  So it
/// stands for all tokens up to its last one.  Full pages are shared.  If only the first tokens of a page
/// agree, or it is not full, its first rows can be copied.
class PrefixPages {
 public:
  explicit PrefixPages(int64_t page_size) : page_size_(page_size) {}

  /// The full pages that hold the longest published beginning of `ids`.  Does not count as a use of them.
  std::vector<int32_t> find(std::span<const int64_t> ids) const;

  /// The page after page `parent` (-1: a first page) whose tokens agree longest with `ids`, and how many of
  /// its rows can be copied.  A row can be copied if its own token and the one after it agree, because the
  /// drafter's keys and values depend on both.
  struct PartialMatch {
    int32_t page = -1;  // -1: none
    int64_t rows = 0;
  };
  PartialMatch find_partial(int32_t parent, std::span<const int64_t> ids) const;

  /// Publishes `page`, whose first rows hold `tokens` (1 to page_size) after page `parent` (-1: a first
  /// page), and counts one use of it.  Returns false, and does nothing, when another page has the same key.
  bool add(int32_t parent, std::span<const int64_t> tokens, int32_t page);

  /// Counts one more, or one fewer, sequence that uses the page.  A sequence uses all parents of its pages,
  /// and releases each page before its parent.
  void use(int32_t page);
  void release(int32_t page);
  /// Removes a page that is not idle from the index.
  void remove(int32_t page);

  /// How many full pages are used by one sequence or more.
  int64_t used_full_pages() const {
    return static_cast<int64_t>((pages_.size() - partial_count_) - (idle_.size() - idle_partial_.size()));
  }
  /// How many pages are idle: published, but used by no sequence.
  int64_t idle_pages() const { return static_cast<int64_t>(idle_.size()); }

  /// Removes the page that has been idle longest and returns its number.  There must be one.  No page has it
  /// as parent any more: such pages were released, so evicted, earlier.
  int32_t evict() { return evict(idle_.begin()->second); }
  /// Removes idle pages, those idle longest first, until they are no more than their share of a cache of
  /// `cache_pages` pages and few of them are partial (not full).  Returns their numbers.
  std::vector<int32_t> evict_surplus(int64_t cache_pages);

 private:
  using Key = std::pair<int32_t, std::vector<int64_t>>;  // parent, tokens
  struct Page {
    std::map<Key, int32_t>::iterator entry;  // in page_by_key_
    int64_t users;                           // sequences that use it
    int64_t idle_since;                      // by clock_; 0: never idle
  };
  bool is_full(const Page& page) const { return std::ssize(page.entry->first.second) == page_size_; }
  int32_t evict(int32_t page);

  int64_t page_size_;
  int64_t clock_ = 0;         // counts how often a page has become idle
  size_t partial_count_ = 0;  // pages that are not full
  std::map<Key, int32_t> page_by_key_;
  std::unordered_map<int32_t, Page> pages_;  // by page number
  // idle_since -> page number: all idle pages, and the partial ones of them.
  std::map<int64_t, int32_t> idle_, idle_partial_;
};

}  // namespace clover::model
