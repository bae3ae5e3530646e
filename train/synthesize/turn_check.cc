#include "train/synthesize/turn_check.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "data/text/utf8.h"

namespace clover::train {
namespace {

/// Whether the text holds "<|word|>" of letters, digits, _ and -, as control tokens are written.
bool has_control_word(std::string_view text) {
  const auto is_of_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
  };
  for (size_t begin = text.find("<|"); begin != text.npos; begin = text.find("<|", begin + 1)) {
    size_t end = begin + 2;
    while (end < text.size() && is_of_word(text[end])) ++end;
    if (end > begin + 2 && text.substr(end, 2) == "|>") return true;
  }
  return false;
}

/// Whether the text, which is trimmed, goes on behind a special token.  One behind the text belongs to the
/// stop string that ended it.
bool has_special_within(const std::string& text, std::span<const int64_t> tokens,
                        const data::Tokenizer& tokenizer) {
  const auto special =
      std::find_if(tokens.begin(), tokens.end(), [&](int64_t token) { return tokenizer.is_special(token); });
  if (special == tokens.end()) return false;
  const std::string before = tokenizer.decode(tokens.first(static_cast<size_t>(special - tokens.begin())));
  return !trim_blanks(data::repair_utf8(before)).starts_with(text);
}

}  // namespace

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

std::string summary_of(const FaultCounts& counts) {
  std::string text;
  for (int fault = 1; fault < turn_faults; ++fault) {
    if (const int64_t count = counts[static_cast<size_t>(fault)]; count > 0) {
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " " +
              std::string(name_of(static_cast<TurnFault>(fault)));
    }
  }
  return text.empty() ? "none" : text;
}

nlohmann::json to_json(const FaultCounts& counts) {
  nlohmann::json by_name = nlohmann::json::object();
  for (int fault = 1; fault < turn_faults; ++fault)
    by_name[std::string(name_of(static_cast<TurnFault>(fault)))] = counts[static_cast<size_t>(fault)];
  return by_name;
}

GeneratedTurn turn_of(const nlohmann::json& record, const data::Tokenizer& tokenizer,
                      std::vector<int64_t>& tokens) {
  tokens = record.value("token_ids", std::vector<int64_t>());
  while (!tokens.empty() && tokenizer.is_special(tokens.back())) tokens.pop_back();
  const std::string text = trim_blanks(record.value("text", ""));
  return {text, tokens, record.value("finish_reason", "") == "length",
          has_special_within(text, tokens, tokenizer)};
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
  if (turn.has_special || has_control_word(turn.text) || turn.text.find("[INST]") != std::string::npos ||
      turn.text.find("[/INST]") != std::string::npos) {
    return TurnFault::markup;
  }
  return TurnFault::none;
}

std::string trim_blanks(const std::string& text) {
  const char* const blanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

}  // namespace clover::train
