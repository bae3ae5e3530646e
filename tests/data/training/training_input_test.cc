#include "data/training/training_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "data/files/error.h"
#include "tests/data/tokenizer/piece_tokenizer.h"
#include "tests/support/goldens.h"
#include "tests/support/input_error.h"
#include "tests/support/temporary_folder.h"

namespace clover::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::PieceTokenizer;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class TrainingInputTest : public ::testing::Test {
 protected:
  ChatTemplate format(const std::string& name) const { return ChatTemplate::load(folder_, name); }

  std::vector<TrainingSample> parse_all(const json& record, const std::string& name = "chatml",
                                        int64_t max_length = 1000) const {
    const ChatTemplate chat_template = format(name);
    return TrainingReader(tokenizer_, chat_template, max_length, tokenizer_.vocab_size())
        .parse(record.dump());
  }

  TrainingSample parse(const json& record, const std::string& name = "chatml",
                       int64_t max_length = 1000) const {
    const std::vector<TrainingSample> samples = parse_all(record, name, max_length);
    EXPECT_EQ(samples.size(), 1u) << record;
    return samples.front();
  }

  std::string error_of(const std::string& line, int64_t max_length = 1000) const {
    const ChatTemplate chat_template = format("chatml");
    return test::input_error(
        [&] { TrainingReader(tokenizer_, chat_template, max_length, tokenizer_.vocab_size()).parse(line); });
  }

  std::vector<int64_t> ids(const std::string& text) const { return tokenizer_.encode(text); }

  std::string marked(const TrainingSample& sample) const { return test::marked_text(sample, tokenizer_); }

  PieceTokenizer tokenizer_;
  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

const json two_turns_with_system = {{{"role", "system"}, {"content", "Be brief."}},
                                    {{"role", "user"}, {"content", "hi"}},
                                    {{"role", "assistant"}, {"content", "yo the"}},
                                    {{"role", "user"}, {"content", "and?"}},
                                    {{"role", "assistant"}, {"content", "bye"}}};
const std::string two_turns_shown =
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    "{yo the<|im_end|>}\n<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n{bye<|im_end|>}\n";

TEST_F(TrainingInputTest, SupervisesWhatTheAssistantWroteAndItsEndToken) {
  const TrainingSample sample = parse({{"messages", two_turns_with_system}, {"category", "chat"}, {"id", 7}});
  EXPECT_EQ(marked(sample), two_turns_shown);
  EXPECT_EQ(sample.ids.size(), sample.supervised.size());
  EXPECT_EQ(sample.category, "chat");
  EXPECT_EQ(std::count(sample.ids.begin(), sample.ids.end(), PieceTokenizer::the), 1);
}

// "\nJoin" would be one token if prompt and answer were tokenised together.
TEST_F(TrainingInputTest, ThePromptIsTokenisedFirstAndThenTheAnswer) {
  const TrainingSample sample = parse({{"question", "q"}, {"answer", "Join us"}});
  EXPECT_THAT(marked(sample), HasSubstr("assistant\n{Join us<|im_end|>}\n"));
  EXPECT_EQ(marked(parse({{"prompt", "say\n"}, {"completion", "Join us"}})), "say\n{Join us<|im_end|>}");
}

TEST_F(TrainingInputTest, EveryWayToWriteAQuestionAndItsAnswerIsTheSameSample) {
  const std::string expected =
      "<|im_start|>user\nhow\n\nmuch<|im_end|>\n<|im_start|>assistant\n{7<|im_end|>}\n";
  const json equal[] = {
      {{"messages",
        {{{"role", "user"}, {"content", "how\n\nmuch"}}, {{"role", "assistant"}, {"content", "7"}}}}},
      {{"conversations", {{{"from", "human"}, {"value", "how\n\nmuch"}}, {{"from", "gpt"}, {"value", "7"}}}}},
      {{"question", "how\n\nmuch"}, {"answer", "7"}},
      {{"instruction", "how"}, {"input", "much"}, {"output", "7"}},
      {{"instruction", "how\n\nmuch"}, {"input", ""}, {"output", "7"}},
      {{"instruction", "how\n\nmuch"}, {"output", "7"}},
  };
  for (const json& record : equal) EXPECT_EQ(marked(parse(record)), expected) << record;
  for (json record : {equal[1], equal[3]}) {
    record["system"] = "Be brief.";
    EXPECT_EQ(marked(parse(record)), "<|im_start|>system\nBe brief.<|im_end|>\n" + expected) << record;
    for (const json& nothing : {json(), json(""), json::array()}) {
      record["system"] = "";
      record["tools"] = record["history"] = nothing;
      EXPECT_EQ(marked(parse(record)), expected) << record;
    }
  }
}

TEST_F(TrainingInputTest, PromptAndCompletionAreReadAsTheyStand) {
  const json record = {{"prompt", "2+2="}, {"completion", "4"}};
  EXPECT_EQ(marked(parse(record)), "2+2={4<|im_end|>}");
  EXPECT_EQ(marked(parse(record, "vicuna")), "2+2={4</s>}");
  EXPECT_EQ(marked(parse(record, "llama-2")), "2+2={4</s>}");
  EXPECT_EQ(marked(parse(record, "none")), "2+2={4}");
  EXPECT_EQ(marked(parse({{"text", "a the b"}})), "{a the b}");
}

TEST_F(TrainingInputTest, CompletionsWithoutATemplateEndAtTheTokenizersOwnEndToken) {
  const auto tokenizer = Tokenizer::load(test::golden_tokenizer("sentencepiece-bpe"));
  const ChatTemplate none = ChatTemplate::load(folder_, "none");
  const TrainingReader reader(*tokenizer, none, 100, 1000);
  const auto samples = reader.parse(R"({"prompt": "the cat", "completion": " sat"})");
  ASSERT_EQ(samples.size(), 1u);
  ASSERT_TRUE(tokenizer->eos());
  EXPECT_EQ(samples[0].ids.back(), *tokenizer->eos());
  EXPECT_EQ(samples[0].supervised.back(), 1);
}

// The answer's header comes after the prompt and contains letters that occur in many answers.
TEST_F(TrainingInputTest, CompletionsEndAsTheFoldersTemplateSays) {
  std::ofstream(folder_ / "chat_template.jinja")
      << "{% for m in messages %}start of {{ m.role }}: {{ m.content }}<|im_end|>\n{% endfor %}";
  EXPECT_EQ(marked(parse({{"prompt", "say "}, {"completion", "a"}}, "jinja")), "say {a<|im_end|>}");
}

TEST_F(TrainingInputTest, AddsTheBosThatTheTokenizerAddsUnlessTheTemplateWroteIt) {
  tokenizer_ = PieceTokenizer(true);
  EXPECT_EQ(marked(parse({{"prompt", ""}, {"completion", "4"}})), "<s>{4<|im_end|>}");
  EXPECT_THAT(marked(parse({{"question", "q"}, {"answer", "a"}}, "llama-2")),
              StartsWith("<s>[INST] q [/INST]{ a </s>}"));
  EXPECT_THAT(marked(parse({{"question", "q"}, {"answer", "a"}}, "chatml")), StartsWith("<|im_start|>user"));
  EXPECT_THAT(marked(parse({{"question", "q"}, {"answer", "a"}}, "vicuna")), StartsWith("<s>A chat between"));
  EXPECT_EQ(parse({{"text", "ab"}}).ids.front(), PieceTokenizer::bos_id);
}

TEST_F(TrainingInputTest, TokenIdsAndMaskAreTakenAsTheyAre) {
  const TrainingSample sample =
      parse({{"token_ids", {5, 6, 260}}, {"loss_mask", {0, true, false}}, {"text", "?"}});
  EXPECT_THAT(sample.ids, ElementsAre(5, 6, 260));
  EXPECT_THAT(sample.supervised, ElementsAre(0, 1, 0));
}

TEST_F(TrainingInputTest, TakesWhatBatchTakes) {
  json parts = two_turns_with_system;
  for (json& message : parts) {
    const std::string text = message["content"];
    message["content"] = {{{"type", "text"}, {"text", text.substr(0, 1)}},
                          {{"type", "text"}, {"text", text.substr(1)}}};
  }
  EXPECT_EQ(parse({{"messages", parts}, {"category", nullptr}}).ids,
            parse({{"messages", two_turns_with_system}}).ids);
}

TEST_F(TrainingInputTest, ABatchAnswerKeepsTheModelsOwnTokens) {
  // "the" as three tokens: not how the tokenizer encodes it, but what the model generated.
  const std::vector<int64_t> answer{'t', 'h', 'e', PieceTokenizer::im_end};
  const json result = {{"text", "the"},
                       {"token_ids", answer},
                       {"finish_reason", "stop"},
                       {"usage", json::object()},
                       {"line", 1}};
  json chat = result;
  chat["messages"] = json::array({{{"role", "user"}, {"content", "hi"}}});
  const TrainingSample sample = parse(chat);
  EXPECT_EQ(marked(sample), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n{the<|im_end|>}");
  EXPECT_EQ(std::vector<int64_t>(sample.ids.end() - 4, sample.ids.end()), answer);

  json plain = result;
  plain["prompt"] = "say ";
  EXPECT_EQ(marked(parse(plain)), "say {the<|im_end|>}");
  plain["token_ids"] = {'t', 'h'};
  plain["finish_reason"] = "length";
  EXPECT_EQ(marked(parse(plain)), "say {th}") << "no end token when the answer was cut by its length";
}

TEST_F(TrainingInputTest, BatchTurnsFollowEachOther) {
  json record = {{"turns", {"hi", "and?"}},
                 {"text", {"yo the", "bye"}},
                 {"token_ids", {ids("yo the<|im_end|>"), ids("bye<|im_end|>")}},
                 {"finish_reason", {"stop", "stop"}}};
  json equal = two_turns_with_system;
  equal.erase(0);
  const TrainingSample whole = parse({{"messages", equal}});
  const TrainingSample sample = parse(record);
  EXPECT_EQ(marked(sample) + "\n", marked(whole));
  EXPECT_EQ(sample.ids, std::vector<int64_t>(whole.ids.begin(), whole.ids.end() - 1));

  // The first answer was truncated: its end token is in the second turn's prompt, and is no label.
  record["token_ids"][0] = ids("yo the");
  record["finish_reason"][0] = "length";
  EXPECT_THAT(
      marked(parse(record)),
      HasSubstr("assistant\n{yo "
                "the}<|im_end|>\n<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n{bye<|im_end|>}"));
  // Llama-2's format puts spaces around an answer that the model did not generate.
  const std::vector<TrainingSample> parts = parse_all(record, "llama-2");
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(marked(parts[0]), "<s>[INST] hi [/INST]{yo the}");
  EXPECT_EQ(marked(parts[1]), "<s>[INST] hi [/INST] yo the </s><s>[INST] and? [/INST]{bye<|im_end|>}");
  EXPECT_EQ(parts[1].part, 1);

  json thoughtful = record;
  thoughtful["text"][0] = "<think>\nhm\n</think>\n\nyo the";
  thoughtful["token_ids"][0] = ids("<think>\nhm\n</think>\n\nyo the<|im_end|>");
  const std::vector<TrainingSample> thought = parse_all(thoughtful, "qwen3");
  ASSERT_EQ(thought.size(), 2u);
  EXPECT_THAT(marked(thought[0]),
              ::testing::EndsWith("assistant\n{<think>\nhm\n</think>\n\nyo the<|im_end|>}"));
  EXPECT_THAT(marked(thought[1]),
              HasSubstr("hi<|im_end|>\n<|im_start|>assistant\nyo the<|im_end|>\n<|im_start|>user\nand?"))
      << "the second turn was decoded without that thought";

  record["text"].erase(1);
  record["token_ids"].erase(1);
  EXPECT_THAT(marked(parse(record)), ::testing::EndsWith("assistant\n{yo the}"))
      << "a job may stop within a conversation";
}

TEST_F(TrainingInputTest, CutsAtTheMaximumLengthAndRefusesWhatThenTeachesNothing) {
  const json record = {{"token_ids", {1, 2, 3, 4, 5}}, {"loss_mask", {0, 0, 1, 0, 1}}};
  EXPECT_THAT(parse(record, "chatml", 3).ids, ElementsAre(1, 2, 3));
  EXPECT_THAT(parse(record, "chatml", 3).supervised, ElementsAre(0, 0, 1));
  EXPECT_THAT(error_of(record.dump(), 2), AllOf(HasSubstr("5 tokens"), HasSubstr("maximum length of 2")));
  EXPECT_THAT(error_of(R"({"token_ids":[1,2],"loss_mask":[1,0]})"),
              HasSubstr("at least one token to learn from"))
      << "the first token is never predicted";
}

TEST_F(TrainingInputTest, ErrorsSayWhichFieldAndWhatWasFound) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "the record: expected valid JSON"},
      {"{", "the record: expected valid JSON"},
      {std::string("{\"text\":\"a\"}\0{", 14), "NUL"},
      {R"({"text":"a","text":"b"})", "\"text\" twice"},
      {"[1]", "the record: expected a JSON object, found a list"},
      {R"({"tekst":"a"})", "found \"tekst\""},
      {"{}", "found an empty object"},
      {R"({"text":""})", "at least one token"},
      {R"({"text":5})", "text: expected a string, found a number"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})",
       "messages[0].content[0].type: expected \"text\", found \"image_url\""},
      {R"({"messages":[{"role":"user","content":[{"type":"text","text":5}]}]})",
       "messages[0].content[0].text: expected a string, found a number"},
      {R"({"messages":{}})", "messages: expected a list, found an object"},
      {R"({"messages":[]})", "messages: expected at least one message, found none"},
      {R"({"messages":["hi"]})", "messages[0]: expected an object, found a string"},
      {R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"a"},{"role":"user","content":5}]})",
       "messages[2].content: expected a string, found a number"},
      {R"({"messages":[{"role":"user"}]})", "messages[0]: expected the field \"content\", found none"},
      {R"({"messages":[{"role":"tool","content":"a"},{"role":"assistant","content":"a"}]})",
       "messages[0].role: expected system, user or assistant for the template chatml, found \"tool\""},
      {R"({"messages":[{"role":"user","content":"a"}]})", "expected an assistant's answer, found none"},
      {R"({"messages":[{"role":"assistant","content":"","tool_calls":[{"type":"function"}]}]})",
       "messages[0].tool_calls: the chat template chatml does not use it"},
      {R"({"tools":[{}],"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})",
       "tools: the chat template chatml does not use it"},
      {R"({"conversations":[{"from":"alien","value":"a"}]})",
       "conversations[0].from: expected human, gpt, system"},
      {R"({"conversations":[{"from":"human","value":5}]})",
       "conversations[0].value: expected a string, found a number"},
      {R"({"prompt":["a"],"completion":"b"})", "prompt: expected a string, found a list"},
      {R"({"instruction":"a","input":7,"output":"b"})", "input: expected a string, found a number"},
      {R"({"token_ids":[1,2]})", "\"loss_mask\" or \"finish_reason\""},
      {R"({"token_ids":[1,2],"loss_mask":[1]})",
       "loss_mask: expected as many values as token_ids (2), found 1"},
      {R"({"token_ids":[1,2],"loss_mask":[0,2]})", "loss_mask[1]: expected 0 or 1, found 2"},
      {R"({"token_ids":[1,2],"loss_mask":[0,"x"]})", "loss_mask[1]: expected 0 or 1, found a string"},
      {R"({"token_ids":[1,2.5],"loss_mask":[0,1]})",
       "token_ids[1]: expected a token id, found the number 2.5"},
      {R"({"token_ids":[1,"a"],"loss_mask":[0,1]})", "token_ids[1]: expected a token id, found a string"},
      {R"({"token_ids":[1,99999999999],"loss_mask":[0,1]})",
       "token_ids[1]: expected a token id, found 99999999999"},
      {R"({"token_ids":[1,-2],"loss_mask":[0,1]})", "token id -2: expected 0 <= id < 262"},
      {R"({"token_ids":[1,262],"loss_mask":[0,1]})", "token id 262: expected 0 <= id < 262"},
      {R"({"prompt":"a","token_ids":[],"text":"","finish_reason":"stop"})", "at least one token"},
      {R"({"token_ids":[1],"text":"a","finish_reason":"stop"})", "expected the field \"prompt\", found none"},
      {R"({"turns":["a"],"token_ids":[1],"text":["a"],"finish_reason":["stop"]})",
       "token_ids[0]: expected a list"},
      {R"({"turns":["a"],"token_ids":[[1],[2]],"text":["a","b"],"finish_reason":["stop"]})",
       "expected one list a turn, found 2 lists"},
      {R"({"turns":["a","b"],"token_ids":[[1],[2]],"text":["a"],"finish_reason":["stop"]})",
       "as many answers as token_ids (2), found 1"},
      {R"({"line":3,"error":{"message":"no such field"}})", "an error of a batch job"},
  };
  for (const auto& [line, message] : cases) EXPECT_THAT(error_of(line), HasSubstr(message)) << line;
}

TEST_F(TrainingInputTest, ReadsAFileLineByLineAndReportsBadOnes) {
  const fs::path file = folder_ / "data.jsonl";
  std::ofstream(file, std::ios::binary)
      << "\xef\xbb\xbf{\"text\":\"one\"}\r\n\n  \r\n{\"text\":2}\nnonsense\n{\"text\":\"\xff\"}\n"
      << "{\"text\":\"last\"}";
  const ChatTemplate chat_template = format("chatml");
  const TrainingReader reader(tokenizer_, chat_template, 1000, tokenizer_.vocab_size());
  std::vector<std::string> texts;
  std::vector<BadRecord> bad;
  reader.read(
      file, [&](TrainingSample&& sample) { texts.push_back(marked(sample)); },
      [&](const BadRecord& record) { bad.push_back(record); });
  EXPECT_THAT(texts, ElementsAre("{one}", "{last}"));
  ASSERT_EQ(bad.size(), 3u);
  EXPECT_EQ(bad[0].file, file.string());
  EXPECT_EQ(bad[0].line, 4);
  EXPECT_EQ(bad[0].reason, "text: expected a string, found a number");
  EXPECT_EQ(bad[1].line, 5);
  EXPECT_EQ(bad[2].line, 6);
  EXPECT_THROW(reader.read(folder_ / "missing", nullptr, nullptr), InputError);
  // An error in the callback is not a bad record.
  EXPECT_THROW(reader.read(
                   file, [](TrainingSample&&) { throw InputError("disk"); }, [](const BadRecord&) {}),
               InputError);
}

TEST_F(TrainingInputTest, SurvivesMutatedRecords) {
  const std::string seeds[] = {
      json({{"messages", two_turns_with_system}}).dump(),
      R"({"turns":["a","b"],"token_ids":[[1,257],[2]],"text":["a","b"],"finish_reason":["stop","length"]})",
      R"({"token_ids":[1,2,3],"loss_mask":[0,1,1],"category":"c"})",
      R"({"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}]})"};
  const std::string pieces[] = {"[",
                                "]",
                                "{",
                                "}",
                                ",",
                                ":",
                                "\"",
                                "null",
                                "-1",
                                "1e99",
                                "\\ud800",
                                "\xc3",
                                "true",
                                std::string(1, '\0'),
                                "99999999999999999999"};
  const ChatTemplate chat_template = format("chatml");
  const TrainingReader reader(tokenizer_, chat_template, 1000, tokenizer_.vocab_size());
  std::mt19937 random(99);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string line = seeds[random() % std::size(seeds)];
    for (int edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % line.size();
      switch (random() % 3) {
        case 0:
          line.erase(at, 1 + random() % 8);
          break;
        case 1:
          line.insert(at, pieces[random() % std::size(pieces)]);
          break;
        default:
          line[at] = static_cast<char>(random());
      }
      if (line.empty()) line = " ";
    }
    try {
      for (const TrainingSample& sample : reader.parse(line)) {
        ASSERT_EQ(sample.ids.size(), sample.supervised.size());
        ASSERT_THAT(sample.supervised, Each(::testing::Le(1)));
      }
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace clover::data
