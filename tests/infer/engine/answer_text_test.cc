#include "infer/engine/answer_text.h"

#include <gtest/gtest.h>

#include "data/files/files.h"
#include "tests/infer/requests/tiny_tokenizer.h"
#include "tests/support/goldens.h"
#include "tests/support/temporary_folder.h"

namespace clover::infer {
namespace {

using Ids = std::vector<int64_t>;

constexpr int64_t im_start = 256, im_end = 257;  // of the tiny tokenizer; its other ids are bytes

Ids bytes(const std::string& text) {
  Ids ids;
  for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
  return ids;
}

Ids joined(std::initializer_list<Ids> parts) {
  Ids ids;
  for (const Ids& part : parts) ids.insert(ids.end(), part.begin(), part.end());
  return ids;
}

class AnswerTextTest : public testing::Test {
 protected:
  AnswerTextTest() {
    test::write_tiny_tokenizer(folder_);
    tokenizer_ = data::Tokenizer::load(folder_);
  }

  /// The text, and the number of tokens after which a stop text ended it (-1: none did).  Expects that the
  /// streamed pieces join to the same text.
  std::pair<std::string, int64_t> answer(const Ids& ids, const std::vector<std::string>& stop,
                                         bool ended = false) {
    AnswerText text(*tokenizer_, stop, {});
    std::string streamed;
    int64_t at = -1;
    for (size_t i = 0; i < ids.size() && at < 0; ++i) {
      const bool last = ended && i + 1 == ids.size();
      if (last)
        text.end(ids[i]);
      else if (text.push(ids[i]))
        at = static_cast<int64_t>(i) + 1;
      streamed += text.take_new_text(last || at >= 0);
    }
    if (at < 0 && !ended) text.finish();
    streamed += text.take_new_text(true);
    EXPECT_EQ(streamed, text.text());
    return {text.text(), at};
  }

  using Found = std::pair<std::string, int64_t>;
  test::TemporaryFolder folder_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
};

TEST_F(AnswerTextTest, StopsAtASpecialTokensTextAloneOrBehindOtherText) {
  const Ids ids = joined({bytes("ab."), {im_end}, bytes("cd"), {im_start, im_end}, bytes("e")});
  EXPECT_EQ(answer(ids, {"<|im_end|>"}), Found("ab.", 4));
  EXPECT_EQ(answer(ids, {".<|im_end|>"}), Found("ab", 4));
  EXPECT_EQ(answer(ids, {"<|im_end|>c"}), Found("ab.", 5));
  EXPECT_EQ(answer(ids, {"<|im_start|>"}), Found("ab.cd", 7));
  EXPECT_EQ(answer(ids, {"d<|im_start|><|im_end|>e"}), Found("ab.c", 9));
  EXPECT_EQ(answer(ids, {"<|im_start|><|im_end|>"}), Found("ab.cd", 8));
  EXPECT_EQ(answer(ids, {"b<|im_start|>"}), Found("ab.cde", -1));
  EXPECT_EQ(answer(ids, {"cd", "<|im_start|>"}), Found("ab.", 6));  // the first to come
  EXPECT_EQ(answer(ids, {".c"}), Found("ab", 5)) << "as the user sees the text";
}

TEST_F(AnswerTextTest, LooksForStopTextsInTheEndTokenToo) {
  EXPECT_EQ(answer(joined({bytes("ab."), {im_end}}), {".<|im_end|>"}, true).first, "ab");
  EXPECT_EQ(answer(joined({bytes("ab."), {im_end}}), {"<|im_end|>"}, true).first, "ab.");
  EXPECT_EQ(answer(joined({bytes("ab."), {im_end}}), {}, true).first, "ab.");
  EXPECT_EQ(answer(joined({bytes("a\xC3"), {im_end}}), {"x"}, true).first, "a\xEF\xBF\xBD");
}

TEST_F(AnswerTextTest, FindsStopTextsAcrossManyTokensAndHoldsBackWhatTheyMayTake) {
  EXPECT_EQ(answer(bytes("one two three"), {"two"}), Found("one ", 7));
  EXPECT_EQ(answer(bytes("one two"), {" two", "ne"}), Found("o", 3));
  EXPECT_EQ(answer(bytes("tw\xC3\xA9"), {"two", "w\xC3\xA9\xC3\xA9"}), Found("tw\xC3\xA9", -1));
}

TEST_F(AnswerTextTest, ByteLevelTextsAreTheSameBehindAPrompt) {
  AnswerText text(*tokenizer_, {}, bytes("prompt \xE5\x8C\x97"));
  for (const int64_t id : bytes(" is\xC3\xA9")) text.push(id);
  EXPECT_EQ(text.text(), " is\xC3\xA9");
}

TEST_F(AnswerTextTest, WholeCharactersThatBeganInThePrompt) {
  AnswerText whole(*tokenizer_, {}, bytes("x\xE5\x8C"));
  for (const int64_t id : bytes("\x97y")) whole.push(id);
  EXPECT_EQ(whole.text(), "\xE5\x8C\x97y");
  AnswerText broken(*tokenizer_, {}, bytes("x\xE5"));  // decoded, the prompt ends in U+FFFD already
  for (const int64_t id : bytes("y\xE5")) broken.push(id);
  broken.finish();
  EXPECT_EQ(broken.text(), "y\xEF\xBF\xBD");
  AnswerText never(*tokenizer_, {}, bytes("x\xE5"));
  never.push(0x8C);
  never.finish();
  EXPECT_EQ(never.text(), "");
}

class Completions : public testing::TestWithParam<const char*> {};

// Decoded whole without the decoded prompt, by transformers.
TEST_P(Completions, KeepTheirFirstSpace) {
  const std::filesystem::path folder = test::golden_tokenizer(GetParam());
  const auto tokenizer = data::Tokenizer::load(folder);
  const nlohmann::json golden = data::read_json(folder / "completions.json");
  int spaces = 0;
  for (const nlohmann::json& one : golden["cases"]) {
    const Ids prompt = one["prompt"].get<Ids>();
    const std::string expected = one["text"].get<std::string>();
    AnswerText text(*tokenizer, {"no such text"}, prompt);
    std::string streamed;
    for (const int64_t id : one["answer"].get<Ids>()) {
      text.push(id);
      streamed += text.take_new_text(false);
    }
    text.finish();
    EXPECT_EQ(text.text(), expected) << one;
    EXPECT_EQ(streamed + text.take_new_text(true), expected) << one;
    if (!expected.starts_with(' ')) continue;
    ++spaces;
    AnswerText stopped(*tokenizer, {expected.substr(0, 2)}, prompt);
    bool stop = false;
    for (const int64_t id : one["answer"].get<Ids>()) stop = stop || stopped.push(id);
    EXPECT_TRUE(stop || expected.size() < 2) << one;
    EXPECT_EQ(stopped.text(), expected.size() < 2 ? expected : "") << one;
  }
  EXPECT_GE(spaces, 10);
}

INSTANTIATE_TEST_SUITE_P(SentencePiece, Completions,
                         testing::Values("sentencepiece-bpe", "sentencepiece-unigram"),
                         [](const auto& kind) { return std::string(kind.param).substr(14); });

}  // namespace
}  // namespace clover::infer
