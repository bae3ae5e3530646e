#include "model/cache/prefix_pages.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>

namespace clover::model {
namespace {

// Idle pages may be 1 / idle_pages_divisor of the cache.  So pages that were never written stay untouched,
// and the operating system need not provide memory for them.
constexpr int64_t idle_pages_divisor = 4;
// Idle pages that are not full are useful only for copying their rows to other sequences.  Few are kept,
// because requests with a common prefix usually come soon after each other.
constexpr int64_t max_idle_partial_pages = 16;

}  // namespace

std::vector<int32_t> PrefixPages::find(std::span<const int64_t> ids) const {
  std::vector<int32_t> pages;
  int32_t parent = -1;
  for (; static_cast<int64_t>(ids.size()) >= page_size_; ids = ids.subspan(page_size_)) {
    const auto found = page_by_key_.find({parent, {ids.begin(), ids.begin() + page_size_}});
    if (found == page_by_key_.end()) break;
    parent = found->second;
    pages.push_back(parent);
  }
  return pages;
}

// Pages of one parent are sorted by their tokens, so the one that agrees longest with `ids` is just before or
// just after the place of `ids`.
PrefixPages::PartialMatch PrefixPages::find_partial(int32_t parent, std::span<const int64_t> ids) const {
  ids = ids.first(std::min<size_t>(ids.size(), page_size_));
  PartialMatch best;
  const auto compare = [&](const std::pair<const Key, int32_t>& candidate) {
    if (candidate.first.first != parent) return;
    const auto first_difference = std::ranges::mismatch(ids, candidate.first.second).in1;
    const int64_t rows = first_difference - ids.begin() - 1;
    if (rows > best.rows) best = {candidate.second, rows};
  };
  const auto next = page_by_key_.lower_bound({parent, {ids.begin(), ids.end()}});
  if (next != page_by_key_.end()) compare(*next);
  if (next != page_by_key_.begin()) compare(*std::prev(next));
  return best;
}

bool PrefixPages::add(int32_t parent, std::span<const int64_t> tokens, int32_t page) {
  TORCH_CHECK(!tokens.empty() && std::ssize(tokens) <= page_size_, "PrefixPages: a page holds 1 to ",
              page_size_, " tokens, found ", tokens.size());
  const auto [entry, added] = page_by_key_.try_emplace({parent, {tokens.begin(), tokens.end()}}, page);
  if (!added) return false;
  pages_[page] = {entry, 1, 0};
  if (!is_full(pages_[page])) ++partial_count_;
  return true;
}

void PrefixPages::use(int32_t number) {
  Page& page = pages_.at(number);
  if (page.users++ > 0) return;
  idle_.erase(page.idle_since);
  idle_partial_.erase(page.idle_since);
}

void PrefixPages::release(int32_t number) {
  Page& page = pages_.at(number);
  if (--page.users > 0) return;
  page.idle_since = ++clock_;
  idle_[page.idle_since] = number;
  if (!is_full(page)) idle_partial_[page.idle_since] = number;
}

void PrefixPages::remove(int32_t number) {
  const Page& page = pages_.at(number);
  if (!is_full(page)) --partial_count_;
  page_by_key_.erase(page.entry);
  pages_.erase(number);
}

std::vector<int32_t> PrefixPages::evict_surplus(int64_t cache_pages) {
  std::vector<int32_t> evicted;
  while (std::ssize(idle_partial_) > max_idle_partial_pages)
    evicted.push_back(evict(idle_partial_.begin()->second));
  while (idle_pages() > cache_pages / idle_pages_divisor) evicted.push_back(evict());
  return evicted;
}

int32_t PrefixPages::evict(int32_t number) {
  const int64_t since = pages_.at(number).idle_since;
  idle_.erase(since);
  idle_partial_.erase(since);
  remove(number);
  return number;
}

}  // namespace clover::model
