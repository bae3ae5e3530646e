#include "train/synthesize/turn_check.h"

#include <algorithm>
#include <set>
#include <vector>

namespace clover::train {

std::string_view name_of(TurnFault fault) {
  switch (fault) {
    case TurnFault::none:
      return "good";
    case TurnFault::empty:
      return "empty";
    case TurnFault::truncated:
      return "truncated";
    case TurnFault::loop:
      return "in a loop";
    case TurnFault::markup:
      return "with markup";
    case TurnFault::duplicate:
      return "a near-duplicate";
    case TurnFault::failed:
      return "failed";
  }
  return "";
}

bool is_loop(std::span<const int64_t> tokens) {
  constexpr size_t max_period = 64, min_repeats = 3, min_tokens = 24;
  for (size_t period = 1; period <= max_period; ++period) {
    const size_t needed = std::max(min_repeats * period, min_tokens);
    if (tokens.size() < needed) break;
    const auto tail = tokens.last(needed);
    if (std::equal(tail.begin() + static_cast<std::ptrdiff_t>(period), tail.end(), tail.begin())) return true;
  }
  constexpr size_t run = 8, min_length = 64;
  if (tokens.size() < min_length) return false;
  std::set<std::vector<int64_t>> runs;
  const size_t count = tokens.size() - run + 1;
  for (size_t i = 0; i < count; ++i) {
    const auto part = tokens.subspan(i, run);
    runs.emplace(part.begin(), part.end());
  }
  return 10 * runs.size() < 6 * count;
}

TurnFault fault_of(const GeneratedTurn& turn) {
  if (turn.text.empty()) return TurnFault::empty;
  if (turn.hit_limit) return TurnFault::truncated;
  if (is_loop(turn.tokens)) return TurnFault::loop;
  if (turn.text.find("<|") != std::string::npos || turn.text.find("[INST]") != std::string::npos ||
      turn.text.find("[/INST]") != std::string::npos) {
    return TurnFault::markup;
  }
  return TurnFault::none;
}

}  // namespace clover::train
