#include "data/text/pre_tokenizer.h"

#include <gtest/gtest.h>
#include <unicode/regex.h>
#include <unicode/utext.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "data/text/character_kind.h"
#include "data/text/utf8.h"

namespace clover::data {
namespace {

using Ranges = std::vector<std::pair<size_t, size_t>>;
using Rule = PreTokenizer::Rule;

// Oracle: the regular expression itself, run by ICU.
Ranges split_by_expression(const std::string& expression, const std::string& text) {
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::RegexPattern> pattern(
      icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(expression), 0, status));
  UText* input = utext_openUTF8(nullptr, text.data(), static_cast<int64_t>(text.size()), &status);
  const std::unique_ptr<icu::RegexMatcher> matcher(pattern->matcher(status));
  matcher->reset(input);
  Ranges ranges;
  while (matcher->find(status)) ranges.emplace_back(matcher->start64(status), matcher->end64(status));
  utext_close(input);
  EXPECT_TRUE(U_SUCCESS(status));
  return ranges;
}

const std::string gpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string llama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string qwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string random_text(std::mt19937& source) {
  static const std::vector<std::string> hard = {
      " ",         "  ",       "\n",          "\r",       "\t",           "'",        "s",
      "S",         "ll",       "Re",          "vE",       "'\xC5\xBF",    "1",        "99",
      "a",         "\xC3\xA9", "!",           "\xC2\xA0", "\xE3\x80\x80", "\xC2\x85", "\xE2\x80\x8D",
      "e\xCC\x81", "\xC2\xB2", "\xE4\xB8\x80"};
  std::string text;
  for (size_t parts = source() % 24; parts > 0; --parts) {
    if (source() % 4 != 0) {
      text += hard[source() % hard.size()];
    } else {
      append_utf8(text, static_cast<char32_t>(source() % 0x1C00));
    }
  }
  return text;
}

TEST(PreTokenizer, ScannersAreTheirExpressions) {
  std::mt19937 source(23);
  for (int round = 0; round < 1500; ++round) {
    const std::string text = random_text(source);
    EXPECT_EQ(PreTokenizer({Rule::gpt2}).split(text), split_by_expression(gpt2, text)) << text;
    EXPECT_EQ(PreTokenizer({Rule::llama3}).split(text), split_by_expression(llama3, text)) << text;
    EXPECT_EQ(PreTokenizer({Rule::qwen2}).split(text), split_by_expression(qwen2, text)) << text;
    EXPECT_EQ(PreTokenizer({Rule::each_digit}).split(text), split_by_expression("\\p{N}|\\P{N}+", text))
        << text;
    EXPECT_EQ(PreTokenizer({Rule::digit_runs}).split(text), split_by_expression("\\p{N}+|\\P{N}+", text))
        << text;
  }
}

TEST(PreTokenizer, LaterRulesCutEarlierPieces) {
  const Ranges expected = {{0, 1}, {1, 2}, {2, 3}, {3, 5}, {5, 6}, {6, 7}};
  EXPECT_EQ(PreTokenizer({Rule::each_digit, Rule::gpt2}).split("a12 b 3"), expected);
}

TEST(PreTokenizer, ReadsEveryFormOfTheConfiguration) {
  using nlohmann::json;
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const auto split = [](const std::string& expression, const char* behavior, bool invert) {
    return json{
        {"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", behavior}, {"invert", invert}};
  };
  const auto rules = [](const json& config) { return PreTokenizer::from_json(config, "here").rules(); };
  const auto sequence = [](const json& parts) {
    return json{{"type", "Sequence"}, {"pretokenizers", parts}};
  };
  EXPECT_EQ(rules(json{{"type", "ByteLevel"}, {"add_prefix_space", false}}), std::vector{Rule::gpt2});
  EXPECT_EQ(rules(sequence({split(llama3, "Isolated", false), bytes})), std::vector{Rule::llama3});
  EXPECT_EQ(rules(sequence({split(qwen2, "Removed", true), bytes})), std::vector{Rule::qwen2});
  EXPECT_EQ(rules(sequence({digits, split(gpt2, "Isolated", false), bytes})),
            (std::vector{Rule::each_digit, Rule::gpt2}));
  EXPECT_ANY_THROW(rules(sequence({split(llama3, "MergedWithNext", false), bytes})));
  EXPECT_ANY_THROW(rules(sequence({split(llama3, "Isolated", false)})));  // never mapped to bytes
  EXPECT_ANY_THROW(rules(sequence({bytes, digits})));
}

TEST(CharacterKind, KnowsUnicode16WithAnyIcu) {
  EXPECT_EQ(kind_of(0x2EBF0), CharacterKind::letter);  // CJK extension I
  EXPECT_EQ(kind_of(0x16D70), CharacterKind::number);
  EXPECT_EQ(kind_of(0x0378), CharacterKind::other);  // unassigned
  EXPECT_EQ(kind_of(0x180E), CharacterKind::other);  // no space any more
  EXPECT_EQ(kind_of(0x0085), CharacterKind::space);
}

}  // namespace
}  // namespace clover::data
