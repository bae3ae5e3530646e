#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace clover::train {

/// Why a generated turn is not used.
enum class TurnFault { none, empty, truncated, loop, markup, duplicate, failed };
constexpr int turn_faults = 7;

/// For messages and reports: "empty", "truncated", "in a loop", "with markup", "a near-duplicate", "failed"
/// (the request was refused).
std::string_view name_of(TurnFault fault);

/// A generated turn, as a record of a batch output has it.
struct GeneratedTurn {
  std::string text;                 // without white space at both ends
  std::span<const int64_t> tokens;  // that the model emitted, without special tokens at the end
  bool hit_limit = false;           // max_tokens ended it
};

/// The first fault that the turn has; `duplicate` is not looked for.
/// `markup`: it holds a control token's text such as "<|im_start|>", so the model went on with the template.
TurnFault fault_of(const GeneratedTurn& turn);

/// Whether the tokens end in the same run again and again (at least three times and 24 tokens in all), or say
/// so much twice that fewer than 60 % of their runs of 8 tokens differ (64 tokens and more).
bool is_loop(std::span<const int64_t> tokens);

}  // namespace clover::train
