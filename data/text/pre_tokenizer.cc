#include "data/text/pre_tokenizer.h"
#include "data/files/json_fields.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "data/files/error.h"
#include "data/text/character_kind.h"
#include "data/text/utf8.h"

namespace clover::data {
namespace {

using Rule = PreTokenizer::Rule;

constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const std::array<CharacterKind, 128> ascii_kinds = [] {
  std::array<CharacterKind, 128> kinds{};
  for (size_t c = 0; c < kinds.size(); ++c) kinds[c] = kind_of(static_cast<char32_t>(c));
  return kinds;
}();

struct Character {
  char32_t code_point;
  uint8_t length;
  CharacterKind kind;

  bool is_newline() const { return code_point == '\r' || code_point == '\n'; }
};

Character character_at(std::string_view text, size_t position) {
  if (position >= text.size()) return {0, 0, CharacterKind::end_of_text};
  const auto byte = static_cast<uint8_t>(text[position]);
  if (byte < 0x80) return {byte, 1, ascii_kinds[byte]};
  const Utf8Step step = decode_utf8(text, position);
  return {step.code_point, step.length, kind_of(step.code_point)};
}

// End of the run of at most `max_characters` characters of class `kind` that begins at `position`.
size_t run_end(std::string_view text, size_t position, CharacterKind kind,
               size_t max_characters = std::string_view::npos) {
  for (; max_characters > 0; --max_characters) {
    const Character c = character_at(text, position);
    if (c.kind != kind) break;
    position += c.length;
  }
  return position;
}

size_t newline_run_end(std::string_view text, size_t position) {
  while (position < text.size() && (text[position] == '\r' || text[position] == '\n')) ++position;
  return position;
}

// Length in bytes of s|t|m|d|re|ve|ll at the beginning of `text`, which follows an apostrophe, else 0.  With
// ignore_case U+017F (long s) counts as s.
size_t contraction_length(std::string_view text, bool ignore_case) {
  if (text.empty()) return 0;
  if (ignore_case && text.starts_with("\xC5\xBF")) return 2;
  const auto character = [&](size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = character(0);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 1;
  const char second = character(1);
  const bool is_pair =
      (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
  return is_pair ? 2 : 0;
}

// End of a match of the alternatives for whitespace: `\s*[\r\n]+` when `newlines`, then `\s+(?!\S)`, then
// `\s+`.
size_t whitespace_end(std::string_view text, size_t begin, bool newlines) {
  size_t end = begin;
  size_t last = begin;         // where the run's last character begins
  size_t newline_end = begin;  // end of its last newline
  for (;;) {
    const Character c = character_at(text, end);
    if (c.kind != CharacterKind::space) break;
    last = end;
    end += c.length;
    if (c.is_newline()) newline_end = end;
  }
  if (newlines && newline_end > begin) return newline_end;
  // The last space before a word belongs to the word.
  return end == text.size() || last == begin ? end : last;
}

size_t gpt2_piece_end(std::string_view text, size_t begin) {
  const Character first = character_at(text, begin);
  if (first.code_point == '\'') {
    const size_t length = contraction_length(text.substr(begin + 1), false);
    if (length > 0) return begin + 1 + length;
  }
  const size_t body = begin + (first.code_point == ' ');
  const CharacterKind kind = character_at(text, body).kind;
  if (kind == CharacterKind::letter || kind == CharacterKind::number || kind == CharacterKind::other)
    return run_end(text, body, kind);
  return whitespace_end(text, begin, false);
}

size_t llama3_piece_end(std::string_view text, size_t begin, size_t max_digits) {
  const Character first = character_at(text, begin);
  if (first.code_point == '\'') {
    const size_t length = contraction_length(text.substr(begin + 1), true);
    if (length > 0) return begin + 1 + length;
  }
  if (first.kind == CharacterKind::number) return run_end(text, begin, CharacterKind::number, max_digits);
  // `[^\r\n\p{L}\p{N}]?\p{L}+`: one leading character of any other kind belongs to the word.
  const size_t word = begin + (first.kind == CharacterKind::letter || first.is_newline() ? 0 : first.length);
  const size_t word_end = run_end(text, word, CharacterKind::letter);
  if (word_end > word) return word_end;
  const size_t symbols = begin + (first.code_point == ' ');
  const size_t symbols_end = run_end(text, symbols, CharacterKind::other);
  if (symbols_end > symbols) return newline_run_end(text, symbols_end);
  return whitespace_end(text, begin, true);
}

// End of the piece of `each_digit` (`single_digits`) or `digit_runs` that begins at `begin`.
size_t digits_piece_end(std::string_view text, size_t begin, bool single_digits) {
  const Character first = character_at(text, begin);
  if (first.kind == CharacterKind::number)
    return single_digits ? begin + first.length : run_end(text, begin, CharacterKind::number);
  size_t end = begin;
  for (Character c = first; c.kind != CharacterKind::number && c.kind != CharacterKind::end_of_text;
       c = character_at(text, end))
    end += c.length;
  return end;
}

size_t piece_end(Rule rule, std::string_view text, size_t begin) {
  switch (rule) {
    case Rule::gpt2:
      return gpt2_piece_end(text, begin);
    case Rule::llama3:
      return llama3_piece_end(text, begin, 3);
    case Rule::qwen2:
      return llama3_piece_end(text, begin, 1);
    case Rule::each_digit:
      return digits_piece_end(text, begin, true);
    case Rule::digit_runs:
      return digits_piece_end(text, begin, false);
  }
  return text.size();
}

std::string excerpt_or_none(const nlohmann::json& value) {
  return value.is_null() ? "none" : to_json_line(value).substr(0, 300);
}

[[noreturn]] void refuse_pre_tokenizer(const std::string& where, const nlohmann::json& found) {
  throw InputError(
      where +
      ": expected a byte-level pre_tokenizer with the GPT-2, Llama-3, Qwen2 or digits pattern, found " +
      excerpt_or_none(found));
}

Rule split_rule(const nlohmann::json& config, const std::string& where) {
  const nlohmann::json pattern = config.value("pattern", nlohmann::json::object());
  const nlohmann::json expression =
      pattern.is_object() ? pattern.value("Regex", nlohmann::json()) : nlohmann::json();
  // "Removed" with invert keeps the matches.  They cover the text, so the pieces are those of "Isolated".
  const bool inverted = config.value("invert", nlohmann::json(false)) == true;
  const nlohmann::json behavior = config.value("behavior", nlohmann::json());
  if (behavior == (inverted ? "Removed" : "Isolated")) {
    if (expression == gpt2_pattern) return Rule::gpt2;
    if (expression == llama3_pattern) return Rule::llama3;
    if (expression == qwen2_pattern) return Rule::qwen2;
  }
  refuse_pre_tokenizer(where, config);
}

struct Stages {
  std::vector<Rule> rules;
  bool byte_level = false;  // a ByteLevel stage was read; no stage may follow it
};

void add_stage(Stages& stages, const nlohmann::json& config, const std::string& where, bool nested) {
  if (!config.is_object() || stages.byte_level) refuse_pre_tokenizer(where, config);
  const nlohmann::json type = config.value("type", nlohmann::json());
  if (type == "Sequence" && !nested && config.contains("pretokenizers") &&
      config["pretokenizers"].is_array()) {
    for (const nlohmann::json& part : config["pretokenizers"]) add_stage(stages, part, where, true);
  } else if (type == "Digits") {
    const bool single_digits = config.value("individual_digits", nlohmann::json(false)) == true;
    stages.rules.push_back(single_digits ? Rule::each_digit : Rule::digit_runs);
  } else if (type == "Split") {
    stages.rules.push_back(split_rule(config, where));
  } else if (type == "ByteLevel") {
    if (config.value("add_prefix_space", nlohmann::json(true)) != false) refuse_pre_tokenizer(where, config);
    if (config.value("use_regex", nlohmann::json(true)) != false) stages.rules.push_back(Rule::gpt2);
    stages.byte_level = true;
  } else {
    refuse_pre_tokenizer(where, config);
  }
}

}  // namespace

PreTokenizer PreTokenizer::from_json(const nlohmann::json& config, const std::string& where) {
  Stages stages;
  add_stage(stages, config, where, false);
  if (!stages.byte_level) refuse_pre_tokenizer(where, config);
  return PreTokenizer(std::move(stages.rules));
}

std::vector<std::pair<size_t, size_t>> PreTokenizer::split(std::string_view text) const {
  std::vector<std::pair<size_t, size_t>> pieces;
  if (text.empty()) return pieces;
  pieces.emplace_back(0, text.size());
  std::vector<std::pair<size_t, size_t>> next_pieces;
  for (Rule rule : rules_) {
    next_pieces.clear();
    next_pieces.reserve(text.size() / 4 + 1);
    for (const auto& [begin, end] : pieces) {
      const std::string_view piece = text.substr(0, end);
      for (size_t at = begin; at < end;) {
        const size_t next = piece_end(rule, piece, at);
        next_pieces.emplace_back(at, next);
        at = next;
      }
    }
    pieces.swap(next_pieces);
  }
  return pieces;
}

}  // namespace clover::data
