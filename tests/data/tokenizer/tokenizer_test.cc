#include "data/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/text/utf8.h"
#include "tests/support/goldens.h"
#include "tests/support/temporary_folder.h"

namespace clover::data {
namespace {

using nlohmann::json;

std::vector<std::string> corpus() {
  std::vector<std::string> texts;
  std::ifstream lines(test::golden_tokenizers() / "corpus.jsonl");
  for (std::string line; std::getline(lines, line);) texts.push_back(json::parse(line));
  return texts;
}

// Random text, always UTF-8, of parts that are difficult for tokenizers.
std::string random_text(std::mt19937& source, size_t length) {
  static const std::vector<std::string> hard = {
      " ",   "  ",        "\n", "\r\n",          "\t",  "'", "'s", "'LL", "1", "23", "a",
      "the", "E\xCC\x81", "<|", "<|endoftext|>", "word"};
  std::string text;
  while (text.size() < length) {
    const uint32_t choice = source() % 6;
    if (choice < 3) {
      text += hard[source() % hard.size()];
      continue;
    }
    const char32_t limit = choice == 3 ? 0x80 : choice == 4 ? 0x3100 : 0x110000;
    const auto code_point = static_cast<char32_t>(source() % limit);
    if (code_point < 0xD800 || code_point > 0xDFFF) append_utf8(text, code_point);
  }
  return text;
}

std::string random_bytes(std::mt19937& source, size_t length) {
  std::string bytes(length, '\0');
  for (char& byte : bytes) byte = static_cast<char>(source());
  return bytes;
}

void expect_spans_cover(const Encoding& encoding, std::string_view text) {
  ASSERT_EQ(encoding.ids.size(), encoding.spans.size());
  size_t end = 0;
  for (const auto& [begin, stop] : encoding.spans) {
    ASSERT_LE(begin, stop);
    ASSERT_LE(begin, end);  // no gap
    end = std::max(end, stop);
  }
  ASSERT_EQ(end, text.size());
}

class EveryKind : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = Tokenizer::load(test::golden_tokenizers() / GetParam());
};

TEST_P(EveryKind, EncodesLikeTheReference) {
  const json expected = read_json(test::golden_tokenizers() / GetParam() / "expected.json");
  const std::vector<std::string> texts = corpus();
  ASSERT_EQ(texts.size(), expected["plain"].size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(json(tokenizer_->encode(texts[i])), expected["plain"][i])
        << "line " << i + 1 << ": " << texts[i];
    EXPECT_EQ(json(tokenizer_->encode(texts[i], {.add_bos = false, .parse_special = false})),
              expected["unparsed"][i])
        << "line " << i + 1 << ", special tokens as text: " << texts[i];
  }
}

TEST_P(EveryKind, EmptyTextIsNoTokens) {
  EXPECT_TRUE(tokenizer_->encode("").empty());
  EXPECT_EQ(tokenizer_->decode({}), "");
}

TEST_P(EveryKind, IdsBeyondTheVocabularyAreNothing) {
  for (int64_t id : {int64_t{-1}, tokenizer_->vocab_size(), INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(tokenizer_->token_bytes(id, true), "");
    EXPECT_FALSE(tokenizer_->is_special(id));
  }
}

TEST_P(EveryKind, HashIsTheSameForTheSameFiles) {
  EXPECT_EQ(tokenizer_->hash(), Tokenizer::load(test::golden_tokenizers() / GetParam())->hash());
  EXPECT_EQ(tokenizer_->hash().size(), 16u);
}

TEST_P(EveryKind, SpansOfPlainTextCoverIt) {
  for (const std::string& text : corpus()) {
    if (GetParam() != "digits") expect_spans_cover(tokenizer_->encode_with_spans(text, {}), text);
  }
}

TEST_P(EveryKind, BrokenUtf8ReadsAsReplacementCharacters) {
  std::mt19937 source(11);
  for (int round = 0; round < 300; ++round) {
    const std::string text = random_bytes(source, source() % 40);
    const Encoding encoding = tokenizer_->encode_with_spans(text, {});
    EXPECT_EQ(encoding.ids, tokenizer_->encode(repair_utf8(text)));
    for (const auto& [begin, end] : encoding.spans) {
      ASSERT_LE(begin, end);
      ASSERT_LE(end, text.size());
    }
  }
}

TEST_P(EveryKind, StreamsWholeCharactersOnly) {
  std::mt19937 source(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> ids(source() % 30);
    for (int64_t& id : ids) id = static_cast<int64_t>(source() % (tokenizer_->vocab_size() + 2));
    StreamDecoder stream(*tokenizer_);
    std::string streamed;
    for (int64_t id : ids) {
      const std::string part = stream.push(id);
      EXPECT_TRUE(is_utf8(part));
      streamed += part;
    }
    streamed += stream.finish();
    EXPECT_EQ(streamed, repair_utf8(tokenizer_->decode(ids)));
  }
}

// Long single pieces must not take quadratic time.
TEST_P(EveryKind, LongInputsAreQuick) {
  const auto begin = std::chrono::steady_clock::now();
  std::string mixed;
  for (int i = 0; i < 20000; ++i) mixed += "ab1 \n";
  std::string characters;
  for (int i = 0; i < 33000; ++i) characters += "\xE4\xB8\x80";
  for (const std::string& text :
       {std::string(100000, ' '), std::string(100000, 'a'), std::string(100000, '\n'),
        std::string(100000, '7'), std::string(100000, '<'), mixed, characters}) {
    const std::vector<int64_t> ids = tokenizer_->encode(text);
    EXPECT_EQ(tokenizer_->decode(ids, false), text);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

INSTANTIATE_TEST_SUITE_P(Golden, EveryKind,
                         ::testing::Values("gpt2", "llama3", "digits", "qwen2", "sentencepiece-bpe",
                                           "sentencepiece-unigram"),
                         [](const auto& kind) {
                           std::string name = kind.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class RoundTrip : public ::testing::TestWithParam<std::string> {};

TEST_P(RoundTrip, DecodingAnEncodingGivesTheTextBack) {
  const auto tokenizer = Tokenizer::load(test::golden_tokenizers() / GetParam());
  std::mt19937 source(3);
  for (int round = 0; round < 400; ++round) {
    const std::string text = random_text(source, source() % 200);
    const Encoding encoding = tokenizer->encode_with_spans(text, {});
    ASSERT_EQ(tokenizer->decode(encoding.ids, false), text);
    expect_spans_cover(encoding, text);
    for (size_t i = 0; i < encoding.ids.size();
         ++i) {  // the bytes of a byte-level token are those of its span
      const auto [begin, end] = encoding.spans[i];
      ASSERT_EQ(tokenizer->token_bytes(encoding.ids[i], i == 0), text.substr(begin, end - begin));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, RoundTrip, ::testing::Values("gpt2", "llama3"));

TEST(ByteLevelBpe, ComposesTextBeforeCuttingAndMapsSpansBack) {
  const auto tokenizer = Tokenizer::load(test::golden_tokenizers() / "qwen2");
  const std::string text = "xe\xCC\x81 \xEF\xBF";  // decomposed é, then an incomplete character
  const Encoding encoding = tokenizer->encode_with_spans(text, {});
  EXPECT_EQ(tokenizer->decode(encoding.ids), "x\xC3\xA9 \xEF\xBF\xBD");
  expect_spans_cover(encoding, text);
}

TEST(ByteLevelBpe, BosComesFromPostProcessorOrSettings) {
  const auto llama3 = Tokenizer::load(test::golden_tokenizers() / "llama3");
  EXPECT_TRUE(llama3->adds_bos());
  EXPECT_EQ(llama3->bos(), llama3->token_id("<|endoftext|>"));
  const Encoding encoding = llama3->encode_with_spans("x", {.add_bos = true});
  EXPECT_EQ(encoding.ids.front(), llama3->bos());
  EXPECT_EQ(encoding.spans.front(), std::make_pair(size_t{0}, size_t{0}));

  const auto digits = Tokenizer::load(test::golden_tokenizers() / "digits");
  EXPECT_FALSE(digits->adds_bos());
  EXPECT_EQ(digits->bos(), digits->token_id("<|im_start|>"));
  EXPECT_EQ(digits->encode("x", {.add_bos = true}), digits->encode("x"));
  EXPECT_FALSE(Tokenizer::load(test::golden_tokenizers() / "qwen2")->bos().has_value());
}

TEST(ByteLevelBpe, KnowsItsTokens) {
  const auto tokenizer = Tokenizer::load(test::golden_tokenizers() / "gpt2");
  EXPECT_EQ(tokenizer->token_id("<|im_end|>"), 2);
  EXPECT_TRUE(tokenizer->is_special(2));
  EXPECT_EQ(tokenizer->decode(std::vector<int64_t>{2}), "");
  EXPECT_EQ(tokenizer->decode(std::vector<int64_t>{2}, false), "<|im_end|>");
  const auto the = tokenizer->token_id(" the");
  ASSERT_TRUE(the.has_value());
  EXPECT_EQ(tokenizer->token_bytes(*the, true), " the");
  EXPECT_FALSE(tokenizer->token_id("no such token").has_value());
}

TEST(SentencePiece, PutsItsSpaceBeforeTheTextOnly) {
  const auto tokenizer = Tokenizer::load(test::golden_tokenizers() / "sentencepiece-bpe");
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("the cat", {.add_bos = true})), "the cat");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a<s>the"), false), "a<s>the");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(" two  spaces")), " two  spaces");
}

TEST(SentencePiece, FallsBackToBytes) {
  const auto tokenizer = Tokenizer::load(test::golden_tokenizers() / "sentencepiece-unigram");
  const std::string text = "x \xF0\x90\x8D\x88\x07";
  const Encoding encoding = tokenizer->encode_with_spans(text, {});
  EXPECT_EQ(tokenizer->decode(encoding.ids), text);
  EXPECT_EQ(encoding.spans.back(), std::make_pair(size_t{6}, size_t{7}));
  EXPECT_EQ(encoding.spans[encoding.spans.size() - 2], std::make_pair(size_t{2}, size_t{6}));
}

TEST(StreamDecoder, HoldsBackHalfCharacters) {
  const auto tokenizer = Tokenizer::load(test::golden_tokenizers() / "gpt2");
  StreamDecoder stream(*tokenizer);
  const auto push_byte = [&](char byte) { return stream.push(*tokenizer->token_id(std::string(1, byte))); };
  EXPECT_EQ(push_byte('\xF0'), "");
  EXPECT_EQ(push_byte('\x9F'), "");
  EXPECT_EQ(push_byte('\x98'), "");
  EXPECT_EQ(push_byte('\x80'), "\xF0\x9F\x98\x80");
  EXPECT_EQ(push_byte('\xE2'), "");
  EXPECT_EQ(push_byte('x'), "\xEF\xBF\xBDx");  // now it cannot become a character
  EXPECT_EQ(push_byte('\xFF'), "\xEF\xBF\xBD");
  EXPECT_EQ(push_byte('\xC3'), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8, ReplacesEachMaximalSubpart) {
  const std::string mark = "\xEF\xBF\xBD";
  // The example of the Unicode standard, table 3-8, and sequences that are never valid.
  EXPECT_EQ(repair_utf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + mark + mark + mark + "b" + mark + "c" + mark + mark + "d");
  EXPECT_EQ(repair_utf8("\xC0\xAF"), mark + mark);
  EXPECT_EQ(repair_utf8("\xED\xA0\x80"), mark + mark + mark);
  EXPECT_EQ(repair_utf8("\xF4\x90\x80\x80"), mark + mark + mark + mark);
  EXPECT_EQ(repair_utf8("\xE2\x82"), mark);
  EXPECT_EQ(repair_utf8("\xF4\x8F\xBF\xBF"), "\xF4\x8F\xBF\xBF");
}

}  // namespace
}  // namespace clover::data
