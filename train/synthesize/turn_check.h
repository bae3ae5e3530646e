#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace clover::train {

/// Why a generated turn is not used.
enum class TurnFault { none, empty, truncated, loop, markup, duplicate, failed };
constexpr int turn_faults = 7;

/// For messages and reports: "empty", "truncated", "in a loop", "with markup", "a near-duplicate", "failed"
/// (the request was refused).
std::string_view name_of(TurnFault fault);

using FaultCounts = std::array<int64_t, turn_faults>;  // by TurnFault
/// "3 in a loop, 1 empty", or "none".
std::string summary_of(const FaultCounts& counts);
/// {"in a loop": 3, ..}, also of faults that no turn had.
nlohmann::json to_json(const FaultCounts& counts);

/// A generated turn, as a record of a batch output has it.
struct GeneratedTurn {
  std::string text;                 // without white space at both ends
  std::span<const int64_t> tokens;  // that the model emitted, without special tokens at the end
  bool hit_limit = false;           // max_tokens ended it
  bool has_special = false;         // a special token, which the text does not show, stands within it
};

/// The turn in a record of a batch output.  `tokens` gets its token ids, to which the result refers.
GeneratedTurn turn_of(const nlohmann::json& record, const data::Tokenizer& tokenizer,
                      std::vector<int64_t>& tokens);

/// The first fault that the turn has; `duplicate` is not looked for.
/// `markup`: a special token stands within it, or a control token's text such as "<|im_start|>", so the model
/// went on with the template.
TurnFault fault_of(const GeneratedTurn& turn);

/// Whether the tokens end in the same run again and again (at least three times and 24 tokens in all), or say
/// so much twice that fewer than 60 % of their runs of 8 tokens differ (64 tokens and more).
bool is_loop(std::span<const int64_t> tokens);

/// The text without white space at both ends.
std::string trim_blanks(const std::string& text);

}  // namespace clover::train
