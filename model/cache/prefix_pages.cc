#include "model/cache/prefix_pages.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>

namespace clover::model {

std::vector<int32_t> PrefixPages::find(std::span<const int64_t> ids) const {
  std::vector<int32_t> pages;
  int32_t parent = -1;
  for (; static_cast<int64_t>(ids.size()) >= page_size_; ids = ids.subspan(page_size_)) {
    const auto found = known_.find({parent, {ids.begin(), ids.begin() + page_size_}});
    if (found == known_.end()) break;
    parent = found->second;
    pages.push_back(parent);
  }
  return pages;
}

// Pages are sorted by their tokens, so the one that agrees longest with `ids` is next to where `ids` would
// be.
PrefixPages::PartialMatch PrefixPages::find_partial(int32_t parent, std::span<const int64_t> ids) const {
  ids = ids.first(std::min<size_t>(ids.size(), page_size_));
  PartialMatch best;
  const auto look_at = [&](const std::pair<const Key, int32_t>& known) {
    if (known.first.first != parent) return;
    const auto differs = std::ranges::mismatch(ids, known.first.second).in1;
    const int64_t rows = differs - ids.begin() - 1;
    if (rows > best.rows) best = {known.second, rows};
  };
  const auto next = known_.lower_bound({parent, {ids.begin(), ids.end()}});
  if (next != known_.end()) look_at(*next);
  if (next != known_.begin()) look_at(*std::prev(next));
  return best;
}

bool PrefixPages::add(int32_t parent, std::span<const int64_t> tokens, int32_t page) {
  TORCH_CHECK(!tokens.empty() && std::ssize(tokens) <= page_size_, "PrefixPages: a page holds 1 to ",
              page_size_, " tokens, found ", tokens.size());
  const auto [place, added] = known_.try_emplace({parent, {tokens.begin(), tokens.end()}}, page);
  if (!added) return false;
  pages_[page] = {place, 1, 0};
  if (!is_full(pages_[page])) ++parts_;
  return true;
}

void PrefixPages::use(int32_t number) {
  Page& page = pages_.at(number);
  if (page.users++ > 0) return;
  idle_.erase(page.idle_since);
  idle_parts_.erase(page.idle_since);
}

void PrefixPages::release(int32_t number) {
  Page& page = pages_.at(number);
  if (--page.users > 0) return;
  page.idle_since = ++clock_;
  idle_[page.idle_since] = number;
  if (!is_full(page)) idle_parts_[page.idle_since] = number;
}

void PrefixPages::forget(int32_t number) {
  const Page& page = pages_.at(number);
  if (!is_full(page)) --parts_;
  known_.erase(page.place);
  pages_.erase(number);
}

int32_t PrefixPages::evict(int32_t number) {
  const int64_t since = pages_.at(number).idle_since;
  idle_.erase(since);
  idle_parts_.erase(since);
  forget(number);
  return number;
}

}  // namespace clover::model
