#include "train/synthesize/turn_check.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "tests/data/tokenizer/piece_tokenizer.h"
#include "train/synthesize/near_duplicates.h"

namespace clover::train {
namespace {

std::vector<int64_t> repeated(const std::vector<int64_t>& run, int times, std::vector<int64_t> before = {}) {
  for (int i = 0; i < times; ++i) before.insert(before.end(), run.begin(), run.end());
  return before;
}

TEST(TurnCheck, ATurnThatEndsInOneRunAgainAndAgainIsALoop) {
  EXPECT_TRUE(is_loop(repeated({7}, 24)));
  EXPECT_FALSE(is_loop(repeated({7}, 23)));
  EXPECT_TRUE(is_loop(repeated({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 3, {90, 91, 92})));
  EXPECT_FALSE(is_loop(repeated({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 2, {90, 91, 92})));
}

TEST(TurnCheck, ATurnThatSaysMostOfItTwiceIsALoop) {
  std::vector<int64_t> count(40);
  std::iota(count.begin(), count.end(), 0);
  const std::vector<int64_t> tail{100, 101, 102};  // so that the turn does not end in the run
  std::vector<int64_t> twice = repeated(count, 2);
  twice.insert(twice.end(), tail.begin(), tail.end());
  EXPECT_TRUE(is_loop(twice));  // 43 of its 76 runs of eight differ
  std::vector<int64_t> once = repeated({count.begin(), count.begin() + 20}, 1, count);
  once.insert(once.end(), tail.begin(), tail.end());
  EXPECT_FALSE(is_loop(once));  // 43 of 56
  std::vector<int64_t> long_text(200);
  std::iota(long_text.begin(), long_text.end(), 0);
  EXPECT_FALSE(is_loop(long_text));
}

TEST(TurnCheck, FaultsAreNamedInTheirOrder) {
  const std::vector<int64_t> tokens{1, 2, 3}, loop = repeated({7}, 30);
  EXPECT_EQ(fault_of({"What is rain?", tokens, false}), TurnFault::none);
  EXPECT_EQ(fault_of({"", tokens, true}), TurnFault::empty);
  EXPECT_EQ(fault_of({"What is", tokens, true}), TurnFault::truncated);
  EXPECT_EQ(fault_of({"no no no", loop, false}), TurnFault::loop);
  EXPECT_EQ(fault_of({"Hi<|im_start|>assistant", tokens, false}), TurnFault::markup);
}

TEST(TurnCheck, CodeIsNoMarkup) {
  const std::vector<int64_t> tokens{1, 2, 3};
  for (const char* text : {"let (<|>) = or_else", "x <| f", "a <|> b |> c", "<| >", "<|"})
    EXPECT_EQ(fault_of({text, tokens, false}), TurnFault::none) << text;
  for (const char* text : {"<|eot_id|>", "a <|<|end-of-turn|>", "[INST] hi"})
    EXPECT_EQ(fault_of({text, tokens, false}), TurnFault::markup) << text;
}

/// The fault of a turn of which the model said `emitted`, and of which the record shows `text`.
TurnFault fault_of_turn(const std::string& emitted, const std::string& text) {
  const test::PieceTokenizer tokenizer;
  std::vector<int64_t> tokens;
  return fault_of(
      turn_of({{"text", text}, {"token_ids", tokenizer.encode(emitted)}, {"finish_reason", "stop"}},
              tokenizer, tokens));
}

TEST(TurnCheck, ASpecialTokenWithinATurnIsMarkupThoughTheTextDoesNotShowIt) {
  EXPECT_EQ(fault_of_turn("What is rain?<|im_end|>", "What is rain?"), TurnFault::none);
  EXPECT_EQ(fault_of_turn("What is<|im_start|> rain?<|im_end|>", "What is rain?"), TurnFault::markup);
  EXPECT_EQ(fault_of_turn("<|im_start|>What is rain?<|im_end|>", "What is rain?"), TurnFault::markup);
  // The text ends where a stop string begins, which special tokens are part of.
  EXPECT_EQ(fault_of_turn(" What is rain?<|im_end|>\n<|im_start|>assistant", " What is rain?"),
            TurnFault::none);
}

TEST(NearDuplicates, TheSameWordsInAnotherSpellingAreOneText) {
  NearDuplicates texts;
  EXPECT_TRUE(texts.add("How many apples does Tom have, if he had 5 and ate 2 of them?"));
  EXPECT_FALSE(texts.add("how many apples does tom have if he had 5 and ate 2 of them"));
  EXPECT_FALSE(texts.add("How many apples does Tom have, if he had 5 and ate 3 of them?"));
  EXPECT_TRUE(texts.add("How many pears would Ann buy for nine dollars at three dollars each?"));
  EXPECT_TRUE(texts.add("你好，请介绍一下杭州的天气。"));
  EXPECT_FALSE(texts.add("你好，请介绍一下杭州的天气！"));
}

TEST(NearDuplicates, SymbolsCountAndHyphensOfWordsDoNot) {
  NearDuplicates texts;
  for (const char* text : {"C", "C++", "C#", "5 + 3", "5 - 3", "5 * 3", "5 < 3", "a well-known city"})
    EXPECT_TRUE(texts.add(text)) << text;
  EXPECT_FALSE(texts.add("c++!"));
  EXPECT_FALSE(texts.add("A well known city."));
}

TEST(NearDuplicates, LettersOfScriptsWithoutSpacesAreWords) {
  NearDuplicates texts;
  EXPECT_TRUE(texts.add("วันนี้อากาศที่เชียงใหม่เป็นอย่างไร"));
  EXPECT_FALSE(texts.add("วันนี้อากาศที่เชียงใหม่เป็นอย่างไรบ้าง"));
  EXPECT_TRUE(texts.add("ขอสูตรต้มยำกุ้ง"));
}

TEST(NearDuplicates, ManyDifferentTextsStayApart) {
  NearDuplicates texts;
  for (int i = 0; i < 500; ++i) {
    std::string text;
    for (int word = 0; word < 12; ++word)
      text += "w" + std::to_string((i * 7919 + word * word * 104729) % 5003) + " ";
    EXPECT_TRUE(texts.add(text)) << i;
    EXPECT_FALSE(texts.add(text)) << i;
  }
}

}  // namespace
}  // namespace clover::train
