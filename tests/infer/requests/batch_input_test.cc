#include "infer/requests/batch_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/files/error.h"
#include "data/files/hash.h"
#include "tests/infer/requests/batch_lines.h"
#include "tests/support/input_error.h"
#include "tests/support/temporary_folder.h"

namespace clover::infer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(BatchInput, ReadsAPromptWithItsOwnFields) {
  const BatchLine line =
      read_valid({{"prompt", "Once"}, {"id", "p"}, {"category", "story"}, {"note", {1, 2}}});
  EXPECT_EQ(line.shape, LineShape::prompt);
  EXPECT_EQ(line.number, 3);
  EXPECT_EQ(line.prompt, "Once");
  EXPECT_EQ(line.id, "p");
  EXPECT_EQ(line.category, "story");
  EXPECT_EQ(line.record["note"], json({1, 2}));  // unknown fields travel along
}

TEST(BatchInput, ReadsMessages) {
  const BatchLine line =
      read_valid({{"messages", {{{"role", "system"}, {"content", "Be brief."}}, hello[0]}}, {"id", 7}});
  EXPECT_EQ(line.shape, LineShape::messages);
  ASSERT_EQ(line.messages.size(), 2u);
  EXPECT_EQ(line.messages[0].role, "system");
  EXPECT_EQ(line.messages[1].content, "Hello");
  EXPECT_EQ(line.id, 7);
}

TEST(BatchInput, ReadsTurnsAsAConversationThatBeginsWithTheFirst) {
  const BatchLine line = read_valid({{"turns", {"One", "Two"}}});
  EXPECT_EQ(line.shape, LineShape::turns);
  EXPECT_EQ(line.turns, (std::vector<std::string>{"One", "Two"}));
  ASSERT_EQ(line.messages.size(), 1u);
  EXPECT_EQ(line.messages[0].content, "One");
  EXPECT_TRUE(line.id.is_null());
}

TEST(BatchInput, JoinsTheTextPartsOfAMessage) {
  const json parts = json::array({{{"type", "text"}, {"text", "Hel"}}, {{"type", "text"}, {"text", "lo"}}});
  const json messages = json::array({{{"role", "user"}, {"content", parts}}});
  EXPECT_EQ(read_valid(openai_chat({{"messages", messages}})).messages[0].content, "Hello");
}

TEST(BatchInput, TakesWhatALineLeavesOpenFromTheFlags) {
  SamplingParams flags;
  flags.rule = {0.7, 0.8, 40};
  flags.seed = 5;
  flags.max_tokens = 99;
  flags.stop = {"X"};
  const SamplingParams own =
      read_valid({{"prompt", "a"}, {"temperature", 0}, {"stop", json::array()}}, flags).sampling;
  EXPECT_EQ(own.rule.temperature, 0);
  EXPECT_EQ(own.rule.top_p, 0.8);
  EXPECT_EQ(own.rule.top_k, 40);
  EXPECT_EQ(own.seed, 5u);
  EXPECT_EQ(own.max_tokens, 99);
  EXPECT_TRUE(own.stop.empty());
}

TEST(BatchInput, ReadsControlsOfLogits) {
  SamplingParams flags;
  flags.controls.presence_penalty = 0.5;
  flags.controls.frequency_penalty = 0.25;
  const json asked = {{"repetition_penalty", 1.2},      {"frequency_penalty", 0},
                      {"logit_bias", {{"5", -100}}},    {"bad_words", "no"},
                      {"bad_words_ids", {{1, 2}, {3}}}, {"suppress_tokens", {4.0}},
                      {"begin_suppress_tokens", {6}},   {"min_tokens", 2},
                      {"no_repeat_ngram_size", 3},      {"min_p", 0.1}};
  json line = asked, body = asked;
  line["prompt"] = "a";
  body["messages"] = hello;
  for (const SamplingParams& read :
       {read_valid(line, flags).sampling, read_valid(openai_chat(body), flags).sampling}) {
    json expected = asked;
    expected.erase("frequency_penalty");
    expected.erase("min_p");
    expected.update({{"presence_penalty", 0.5}, {"logit_bias", {{5, -100}}}, {"bad_words", {"no"}}});
    EXPECT_EQ(read.controls.to_json(), expected);
    EXPECT_EQ(read.rule.min_p, 0.1);
  }
}

TEST(BatchInput, KeysRandomnessByIdThenLineAndNotAtAllForAnOwnSeed) {
  SamplingParams flags;
  flags.seed = 5;
  const RandomKey by_id = read_valid({{"prompt", "a"}, {"id", "x"}}, flags).random_key();
  EXPECT_EQ(by_id.seed, 5u);
  EXPECT_EQ(by_id.request, data::fnv1a("x"));
  EXPECT_EQ(read_valid({{"prompt", "other"}, {"id", "x"}}, flags).random_key().request, by_id.request);
  EXPECT_EQ(read_valid({{"prompt", "a"}}, flags).random_key().request, data::fnv1a("3"));  // its line number
  const RandomKey own = read_valid({{"prompt", "a"}, {"id", "x"}, {"seed", 9}}, flags).random_key();
  EXPECT_EQ(own.seed, 9u);
  EXPECT_EQ(own.request, 0u);
}

TEST(BatchInput, NamesWhatIsWrongWithALine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"prompt\": \"a\"", "valid JSON"},
      {"[1]", "expected an object"},
      {"{}", "found none of them"},
      {R"({"prompt": "a", "turns": ["b"]})", "found prompt and turns"},
      {R"({"prompt": ""})", "prompt: expected a text"},
      {R"({"prompt": 5})", "prompt: expected a string, found number"},
      {R"({"turns": []})", "turns: expected a list"},
      {R"({"turns": ["a", 1]})", "turns[1]"},
      {R"({"messages": []})", "messages: expected at least one message"},
      {R"({"messages": [{"role": "user"}]})", "messages[0]"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]})",
       "messages[0].content[0].type: expected \"text\", found \"image_url\""},
      {R"({"prompt": "a", "id": ["x"]})", "id: expected a string or a number"},
      {R"({"prompt": "a", "id": true})", "id: expected a string or a number"},
      {R"({"prompt": []})", "prompt: expected a text or the ids of tokens, found an empty list"},
      {R"({"prompt": [1, "a"]})", "prompt[1]: expected a token's id, found \"a\""},
      {R"({"prompt": [1, -2]})", "prompt[1]: expected a token's id, found -2"},
      {R"({"prompt": [1.5]})", "prompt[0]: expected a token's id, found 1.5"},
      {R"({"prompt": [[1], []]})", "prompt[1]: expected a text or the ids of tokens, found an empty list"},
      {R"({"prompt": ["a", [1]]})", "prompt[1]: expected texts or lists of token ids"},
      {R"({"prompt": ["a", ""]})", "prompt[1]: expected a text, found an empty string"},
      {R"({"prompt": [{"role": "user", "content": "a"}]})", "messages stand in \"messages\""},
      {R"({"prompt": "a", "temperature": -1})", "temperature: expected a number >= 0"},
      {R"({"prompt": "a", "temperature": "hot"})", "temperature"},
      {R"({"prompt": "a", "temperature": 1e400})", "temperature: expected a number >= 0, found \"1e400\""},
      {R"({"prompt": "a", "max_tokens": 1e400})", "max_tokens: expected an integer >= 1"},
      {R"({"prompt": "a", "seed": 1e30})", "seed: expected an integer of 64 bits"},
      {R"({"prompt": "a", "seed": true})", "seed: expected an integer of 64 bits"},
      {R"({"prompt": "a", "stream": 0})", "stream is not supported (found 0); remove it or set it to false"},
      {R"({"prompt": "a", "top_p": 0})", "top_p"},
      {R"({"prompt": "a", "top_p": 1.5})", "top_p"},
      {R"({"prompt": "a", "top_k": -2})", "top_k: expected an integer >= 0 (0 or -1: all tokens)"},
      {R"({"prompt": "a", "top_k": 4.5})", "top_k"},
      {R"({"prompt": "a", "max_tokens": 0})", "max_tokens"},
      {R"({"prompt": "a", "max_tokens": 2.5})", "max_tokens"},
      {R"({"prompt": "a", "max_tokens": 18446744073709551615})", "max_tokens"},
      {R"({"prompt": "a", "seed": "x"})", "seed"},
      {R"({"prompt": "a", "stop": ["b", ""]})", "stop"},
      {R"({"prompt": "a", "stop": [1]})", "stop"},
      {R"({"prompt": "a", "typical_p": 0.1})", "typical_p is not supported"},
      {R"({"prompt": "a", "num_beams": 4})", "num_beams is not supported"},
      {R"({"prompt": "a", "sequence_bias": [[[5], 1.5]]})", "sequence_bias is not supported"},
      {R"({"prompt": "a", "min_p": 1.1})", "min_p: expected a number from 0 to 1, found 1.1"},
      {R"({"prompt": "a", "repetition_penalty": 0})",
       "repetition_penalty: expected a number above 0, found 0"},
      {R"({"prompt": "a", "presence_penalty": -2.5})", "presence_penalty: expected a number from -2 to 2"},
      {R"({"prompt": "a", "frequency_penalty": "1"})", "frequency_penalty: expected a number from -2 to 2"},
      {R"({"prompt": "a", "logit_bias": {"five": 1}})", "logit_bias: expected token ids as names"},
      {R"({"prompt": "a", "logit_bias": {"5": 101}})", "logit_bias: expected numbers from -100 to 100"},
      {R"({"prompt": "a", "logit_bias": [5]})", "logit_bias: expected an object"},
      {R"({"prompt": "a", "bad_words": [""]})", "bad_words: expected a text"},
      {R"({"prompt": "a", "bad_words_ids": [[]]})", "bad_words_ids: expected a list of lists"},
      {R"({"prompt": "a", "suppress_tokens": [1.5]})", "suppress_tokens: expected a list of token ids"},
      {R"({"prompt": "a", "no_repeat_ngram_size": -1})", "no_repeat_ngram_size: expected an integer >= 0"},
      {R"({"prompt": "a", "min_tokens": 6, "max_tokens": 5})", "min_tokens: expected at most max_tokens (5)"},
      {R"({"prompt": "a", "prompt": "b"})", "twice"},
      {"{\"prompt\": \"\xff\"}", "valid JSON"},
      {std::string(100, '['), "nested"},
  };
  for (const auto& [text, message] : cases) {
    const BadLine line = read_invalid(text);
    EXPECT_THAT(line.message, HasSubstr(message)) << text;
    EXPECT_FALSE(line.openai) << text;
    EXPECT_EQ(line.record()["line"], 3);
    EXPECT_EQ(line.record()["error"]["message"], line.message);
  }
}

TEST(BatchInput, KnowsIdsByHowTheyAreWritten) {
  BatchParser parser({});
  for (const char* id :
       {"12345678901234567890123", "12345678901234567890124", "1", "1.0", "1e400", "\"1e400\""}) {
    const auto parsed = parser.parse(1, "{\"prompt\": \"a\", \"id\": " + std::string(id) + "}");
    ASSERT_TRUE(std::holds_alternative<BatchLine>(parsed)) << id;
  }
  for (const char* id : {"12345678901234567890123", "1.0", "1e400"}) {
    const auto parsed = parser.parse(1, "{\"prompt\": \"a\", \"id\": " + std::string(id) + "}");
    ASSERT_TRUE(std::holds_alternative<BadLine>(parsed)) << id;
    const BadLine& line = std::get<BadLine>(parsed);
    EXPECT_THAT(line.message, HasSubstr("id " + std::string(id) + " stands on an earlier line"));
    EXPECT_THAT(record_to_text(line.record(), line.verbatim), HasSubstr("\"id\":" + std::string(id) + ","));
  }
}

TEST(BatchInput, CallsARepeatedIdAnErrorOfTheLaterLine) {
  BatchParser parser({});
  EXPECT_TRUE(std::holds_alternative<BatchLine>(parser.parse(1, R"({"id": "1", "prompt": "a"})")));
  EXPECT_TRUE(std::holds_alternative<BatchLine>(parser.parse(2, R"({"id": 1, "prompt": "a"})")));  // a number
  EXPECT_TRUE(std::holds_alternative<BatchLine>(parser.parse(3, R"({"prompt": "a"})")));
  EXPECT_TRUE(std::holds_alternative<BatchLine>(parser.parse(4, R"({"prompt": "a"})")));
  const auto repeated = parser.parse(5, R"({"id": "1", "prompt": "b"})");
  ASSERT_TRUE(std::holds_alternative<BadLine>(repeated));
  EXPECT_THAT(std::get<BadLine>(repeated).message, HasSubstr("earlier line"));
  EXPECT_EQ(std::get<BadLine>(repeated).id, "1");
}

TEST(BatchInput, TokenizeAlsoTakesTextsAndEmptyOnes) {
  auto parsed = parse_batch_line(1, R"({"text": ""})", {}, true);
  ASSERT_TRUE(std::holds_alternative<BatchLine>(parsed));
  EXPECT_EQ(std::get<BatchLine>(parsed).shape, LineShape::text);
  EXPECT_THAT(read_invalid(R"({"text": "a"})").message, HasSubstr("found none of them"));  // batch does not
}

TEST(BatchInput, ReadsAWholeFileOrNamesTheFirstBadLine) {
  const test::TemporaryFolder folder;
  const auto file = folder.write("in.jsonl", "{\"prompt\": \"a\"}\n\n{\"prompt\": \"b\"}");
  const std::vector<BatchLine> lines = read_batch_file(file, {});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].number, 3);
  folder.write("in.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": 1}\n");
  EXPECT_THAT(test::input_error([&] { read_batch_file(file, {}); }), HasSubstr("line 2"));
  folder.write("in.jsonl", "\n");
  EXPECT_THROW(read_batch_file(file, {}), data::InputError);
}

}  // namespace
}  // namespace clover::infer
