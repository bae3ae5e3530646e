#include "model/prefix_pages.h"

#include <c10/util/Exception.h>

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

bool PrefixPages::add(int32_t parent, std::span<const int64_t> tokens, int32_t page) {
  TORCH_CHECK(static_cast<int64_t>(tokens.size()) == page_size_, "PrefixPages: a page holds ", page_size_,
              " tokens, found ", tokens.size());
  const auto [place, added] = known_.try_emplace({parent, {tokens.begin(), tokens.end()}}, page);
  if (added) pages_[page] = {place, 1, 0};
  return added;
}

void PrefixPages::use(int32_t number) {
  Page& page = pages_.at(number);
  if (page.users++ == 0) idle_.erase(page.idle_since);
}

void PrefixPages::release(int32_t number) {
  Page& page = pages_.at(number);
  if (--page.users > 0) return;
  page.idle_since = ++clock_;
  idle_[page.idle_since] = number;
}

int32_t PrefixPages::evict() {
  const int32_t number = idle_.begin()->second;
  idle_.erase(idle_.begin());
  known_.erase(pages_.at(number).place);
  pages_.erase(number);
  return number;
}

}  // namespace clover::model
