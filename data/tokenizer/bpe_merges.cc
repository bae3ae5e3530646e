#include "data/tokenizer/bpe_merges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>
#include <tuple>

namespace clover::data {
namespace {

constexpr uint64_t no_pair = UINT64_MAX;
constexpr size_t max_short_length = 32;  // symbols; up to here a scan for the minimum is faster than a heap
constexpr uint32_t no_symbol = UINT32_MAX;

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

BpeMerges::BpeMerges(size_t count) {
  const size_t slots = std::bit_ceil(std::max<size_t>(2 * count, 16));
  slots_.assign(slots, {no_pair, {no_rank, -1}});
  shift_ = 64 - std::countr_zero(slots);
}

size_t BpeMerges::slot_of(uint64_t pair) const {
  size_t slot = (pair * 0x9E3779B97F4A7C15ull) >> shift_;  // Fibonacci hashing
  while (slots_[slot].pair != pair && slots_[slot].pair != no_pair) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void BpeMerges::add(int32_t left, int32_t right, uint32_t rank, int32_t result) {
  const uint64_t pair = pair_of(left, right);
  slots_[slot_of(pair)] = {pair, {rank, result}};
}

BpeMerges::Merge BpeMerges::find(int32_t left, int32_t right) const {
  return slots_[slot_of(pair_of(left, right))].merge;
}

void BpeMerges::apply(std::vector<BpeSymbol>& symbols) const {
  if (symbols.size() < 2) return;
  symbols.size() <= max_short_length ? apply_short(symbols) : apply_long(symbols);
}

void BpeMerges::apply_short(std::vector<BpeSymbol>& symbols) const {
  std::array<Merge, max_short_length> merges;  // [i]: merge of symbols i and i+1
  size_t pairs = symbols.size() - 1;
  for (size_t i = 0; i < pairs; ++i) merges[i] = find(symbols[i].id, symbols[i + 1].id);
  while (pairs > 0) {
    size_t best = 0;
    for (size_t i = 1; i < pairs; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == no_rank) break;
    symbols[best] = {merges[best].result, symbols[best].begin, symbols[best + 1].end};
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::copy(merges.begin() + best + 1, merges.begin() + pairs, merges.begin() + best);
    --pairs;
    if (best > 0) merges[best - 1] = find(symbols[best - 1].id, symbols[best].id);
    if (best < pairs) merges[best] = find(symbols[best].id, symbols[best + 1].id);
  }
}

void BpeMerges::apply_long(std::vector<BpeSymbol>& symbols) const {
  struct Link {  // indices of the neighbours of a symbol, or no_symbol
    uint32_t before, after;
  };
  struct Candidate {
    Merge merge;
    uint32_t left, right;  // indices of the symbols
    uint32_t end;          // where the right symbol ended when the candidate was made; it grows by a merge
    bool operator>(const Candidate& candidate) const {
      return std::tie(merge.rank, left) > std::tie(candidate.merge.rank, candidate.left);
    }
  };
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<Link> links(count);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto push_candidate = [&](uint32_t left, uint32_t right) {
    if (left == no_symbol || right == no_symbol) return;
    const Merge merge = find(symbols[left].id, symbols[right].id);
    if (merge.rank != no_rank) queue.push({merge, left, right, symbols[right].end});
  };
  for (uint32_t i = 0; i < count; ++i)
    links[i] = {i == 0 ? no_symbol : i - 1, i + 1 == count ? no_symbol : i + 1};
  for (uint32_t i = 0; i + 1 < count; ++i) push_candidate(i, i + 1);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const bool is_current = symbols[best.left].id >= 0 && symbols[best.right].id >= 0 &&
                            links[best.left].after == best.right && symbols[best.right].end == best.end;
    if (!is_current) continue;
    symbols[best.left] = {best.merge.result, symbols[best.left].begin, best.end};
    symbols[best.right].id = -1;
    const uint32_t after = links[best.right].after;
    links[best.left].after = after;
    if (after != no_symbol) links[after].before = best.left;
    push_candidate(links[best.left].before, best.left);
    push_candidate(best.left, after);
  }
  std::erase_if(symbols, [](const BpeSymbol& symbol) { return symbol.id < 0; });
}

}  // namespace clover::data
