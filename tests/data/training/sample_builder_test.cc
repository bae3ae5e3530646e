#include "data/training/sample_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "data/files/error.h"
#include "data/training/sample_tokens.h"
#include "data/training/training_input.h"
#include "tests/data/tokenizer/piece_tokenizer.h"
#include "tests/support/goldens.h"
#include "tests/support/input_error.h"
#include "tests/support/temporary_folder.h"

// Samples under templates of many kinds: each answer must follow the template's text with the generation
// prompt, as in decoding.
namespace clover::data {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json conversation(std::initializer_list<std::pair<const char*, const char*>> turns) {
  json messages = json::array();
  for (const auto& [role, content] : turns) messages.push_back({{"role", role}, {"content", content}});
  return messages;
}

class SampleBuilderTest : public ::testing::Test {
 protected:
  ChatTemplate format(const std::string& text) const {
    std::ofstream(folder_.path() / "chat_template.jinja") << text;
    std::ofstream(folder_.path() / "tokenizer_config.json") << R"({"bos_token":"<s>","eos_token":"</s>"})";
    return ChatTemplate::load(folder_.path(), "jinja");
  }

  std::vector<std::string> marked_samples(const std::string& text, const json& record) const {
    const ChatTemplate chat_template = format(text);
    std::vector<std::string> marked;
    for (const auto& sample : TrainingReader(tokenizer_, chat_template, 1000, 1000).parse(record.dump()))
      marked.push_back(test::marked_text(sample, tokenizer_));
    return marked;
  }

  std::string error_of(const std::string& text, const json& record) const {
    return test::input_error([&] { marked_samples(text, record); });
  }

  const test::PieceTokenizer tokenizer_;
  const test::TemporaryFolder folder_;
};

const std::string chatml =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// The form of Mistral's templates: the system prompt is in the last message (v0.3) or in the last question
// (Nemo).
const std::string system_into_last_message =
    "<s>{% for m in messages %}{% if m.role == 'user' %}[Q] {% if loop.last and messages[0].role == 'system' "
    "%}{{ messages[0].content }}\n\n{% endif %}{{ m.content }}[/Q]{% elif m.role == 'assistant' %} {{ "
    "m.content "
    "}}</s>{% endif %}{% endfor %}";
const std::string system_into_last_question =
    "{% set said = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set said.last = "
    "loop.index0 %}{% endif %}{% endfor %}<s>{% for m in messages %}{% if m.role == 'user' %}[Q] {% if "
    "loop.index0 == said.last and messages[0].role == 'system' %}{{ messages[0].content }}\n\n{% endif %}{{ "
    "m.content }}[/Q]{% elif m.role == 'assistant' %} {{ m.content }}</s>{% endif %}{% endfor %}";

TEST_F(SampleBuilderTest, ASystemMessageThatMovesToTheLastQuestionIsWhereTheDecoderReadsIt) {
  const json messages = conversation({{"system", "Rhyme."},
                                      {"user", "How does it go?"},
                                      {"assistant", "So."},
                                      {"user", "And then?"},
                                      {"assistant", "No."}});
  for (const std::string& text : {system_into_last_message, system_into_last_question}) {
    EXPECT_THAT(marked_samples(text, {{"messages", messages}}),
                ElementsAre("<s>[Q] Rhyme.\n\nHow does it go?[/Q]{ So.</s>}",
                            "<s>[Q] How does it go?[/Q] So.</s>[Q] Rhyme.\n\nAnd then?[/Q]{ No.</s>}"));
  }
}

const std::string thoughts_left_out =
    "{% for m in messages %}{% if m.role == 'user' %}<U>{{ m.content }}{% else %}<A>{{ "
    "m.content.split('</think>')[-1] }}<|im_end|>{% endif %}{% endfor %}";

TEST_F(SampleBuilderTest, WhatATemplateWritesBeforeAFirstAnswerIsNotLearned) {
  const std::string with_default =
      "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}" + chatml;
  for (const char* first : {"Be kind.", "hello", "", "assistant", "a"}) {
    const json messages = conversation({{"assistant", first}, {"user", "q"}, {"assistant", "yes"}});
    EXPECT_THAT(
        marked_samples(with_default, {{"messages", messages}}),
        ElementsAre("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>assistant\n{" + std::string(first) +
                    "<|im_end|>}\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n{yes<|im_end|>"
                    "}\n"));
  }
}

TEST_F(SampleBuilderTest, ThoughtsThatTheHistoryLosesAreLearnedWhereTheyWereThought) {
  const json messages = conversation({{"user", "hi"},
                                      {"assistant", "<think>\nA\n</think>\n\nB"},
                                      {"user", "x"},
                                      {"assistant", "<think>\nC\n</think>\n\nD"}});
  const std::string opened = thoughts_left_out + "{% if add_generation_prompt %}<A><think>\n{% endif %}";
  EXPECT_THAT(marked_samples(opened, {{"messages", messages}}),
              ElementsAre("<U>hi<A><think>\n{A\n</think>\n\nB<|im_end|>}",
                          "<U>hi<A>\n\nB<|im_end|><U>x<A><think>\n{C\n</think>\n\nD<|im_end|>}"));
  // Some data sets contain the generated text after such a prompt.
  EXPECT_THAT(marked_samples(
                  opened, {{"messages", conversation({{"user", "hi"}, {"assistant", "A\n</think>\n\nB"}})}}),
              ElementsAre("<U>hi<A><think>\n{A\n</think>\n\nB<|im_end|>}"));
  const std::string unopened = thoughts_left_out + "{% if add_generation_prompt %}<A>{% endif %}";
  EXPECT_THAT(marked_samples(unopened, {{"messages", messages}}),
              ElementsAre("<U>hi<A>{<think>\nA\n</think>\n\nB<|im_end|>}",
                          "<U>hi<A>\n\nB<|im_end|><U>x<A>{<think>\nC\n</think>\n\nD<|im_end|>}"));
  EXPECT_THAT(error_of(opened, {{"messages", conversation({{"user", "hi"}, {"assistant", "Hello."}})}}),
              HasSubstr("messages[1]: the chat template does not write this answer behind its own generation "
                        "prompt (expected \"<think>"));
}

TEST_F(SampleBuilderTest, AGenerationPromptMayEndInASpaceOrInOtherSpaceThanTheTemplateWrites) {
  const std::string behind_space =
      "{% for m in messages %}{% if m.role == 'user' %}[Q] {{ m.content | trim }}{% else %} [A] {{ m.content "
      "| "
      "trim }}</s>{% endif %}{% endfor %}{% if add_generation_prompt %} [A] {% endif %}";
  const json two = {
      {"messages",
       conversation({{"user", "q"}, {"assistant", "the one"}, {"user", "r"}, {"assistant", " b "}})}};
  EXPECT_THAT(marked_samples(behind_space, two), ElementsAre("[Q] q [A] {the one</s>}[Q] r [A] {b</s>}"));
  const std::string no_space =
      "{% for m in messages %}{% if m.role == 'user' %}[Q]{{ m.content }}{% else %}[A]{{ m.content }}</s>{% "
      "endif "
      "%}{% endfor %}{% if add_generation_prompt %}[A]\n{% endif %}";
  EXPECT_THAT(marked_samples(no_space, {{"question", "q"}, {"answer", "a"}}),
              ElementsAre("[Q]q[A]\n{a</s>}"));
  const std::string changed =
      "{% for m in messages %}{{ m.role }}: {{ m.content | replace('\n\n', '\n') | trim }}</s>{% endfor %}{% "
      "if "
      "add_generation_prompt %}assistant:\n{% endif %}";
  EXPECT_THAT(marked_samples(changed, {{"question", "q"}, {"answer", "a\n\nb "}}),
              ElementsAre("user: q</s>assistant:\n{a\nb</s>}"));
  const std::string other_mark =
      "{% for m in messages %}{{ '[Q]' if m.role == 'user' else '[A]' }}{{ m.content }}</s>{% endfor %}{% if "
      "add_generation_prompt %}[B]:{% endif %}";
  EXPECT_THAT(marked_samples(other_mark, {{"question", "q"}, {"answer", "a"}}),
              ElementsAre("[Q]q</s>[B]:{a</s>}"));
}

TEST_F(SampleBuilderTest, GenerationMarksSayWhatIsLearnedAndWhetherTheEndIs) {
  const std::string begin =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ "
      "m.content "
      "}}";
  const std::string end =
      "{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}{% if add_generation_prompt "
      "%}<|im_start|>assistant\n{% endif %}";
  const std::string without = begin + "{% endgeneration %}<|im_end|>" + end;
  const std::string with = begin + "<|im_end|>{% endgeneration %}" + end;
  const json record = {{"question", "q"}, {"answer", "a"}};
  EXPECT_THAT(marked_samples(without, record), ElementsAre(HasSubstr("assistant\n{a}<|im_end|>")));
  EXPECT_THAT(masking_notice(format(without)), HasSubstr("without the end token"));
  EXPECT_THAT(marked_samples(with, record), ElementsAre(HasSubstr("assistant\n{a<|im_end|>}")));
  EXPECT_EQ(masking_notice(format(with)), "");
  EXPECT_EQ(masking_notice(format(chatml)), "");
}

TEST_F(SampleBuilderTest, ReasoningIsWhatTheTemplateMakesOfItByWhateverName) {
  const std::string text =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>{{ "
      "m.reasoning_content "
      "}}</think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt "
      "%}<|im_start|>assistant\n{% endif %}";
  for (const char* name : {"reasoning_content", "reasoning", "thinking"}) {
    json messages = conversation({{"user", "q"}, {"assistant", "a"}});
    messages[1][name] = "hm";
    EXPECT_THAT(
        marked_samples(text, {{"messages", messages}}),
        ElementsAre(
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n{<think>hm</think>a<|im_end|>}\n"));
    EXPECT_THAT(error_of(chatml, {{"messages", messages}}),
                HasSubstr(std::string("messages[1].") + name + ": the chat template does not use it"));
    messages[1][name] = nullptr;
    EXPECT_EQ(marked_samples(chatml, {{"messages", messages}}).size(), 1u);
  }
}

TEST_F(SampleBuilderTest, ArgumentsGoToTheTemplateInTheirOrderOrAreRefused) {
  const std::string text =
      "{% if tools %}{{ tools | tojson }}{% endif %}{% if enable_thinking is false %}!{% endif %}{{ "
      "documents | "
      "length if documents else '' }}" +
      chatml;
  const std::string line =
      R"({"question":"q","answer":"a","tools":[{"type":"function","function":{"name":"f","about":"b"}}]})";
  const auto first_sample_text = [&](const std::string& record) {
    const ChatTemplate chat_template = format(text);
    return test::marked_text(TrainingReader(tokenizer_, chat_template, 1000, 1000).parse(record)[0],
                             tokenizer_);
  };
  EXPECT_THAT(first_sample_text(line),
              HasSubstr(R"([{"type": "function", "function": {"name": "f", "about": "b"}}])"));
  EXPECT_THAT(first_sample_text(R"({"question":"q","answer":"a","functions":[{"name":"f"}]})"),
              HasSubstr(R"([{"type": "function", "function": {"name": "f"}}])"));
  EXPECT_THAT(first_sample_text(R"({"question":"q","answer":"a","tools":"[{\"b\":1,\"a\":2}]"})"),
              HasSubstr(R"([{"b": 1, "a": 2}])"));
  EXPECT_THAT(
      first_sample_text(R"({"question":"q","answer":"a","chat_template_kwargs":{"enable_thinking":false}})"),
      HasSubstr("!"));
  EXPECT_THAT(first_sample_text(R"({"question":"q","answer":"a","documents":[{"text":"d"},{"text":"e"}]})"),
              HasSubstr("2"));
  EXPECT_THAT(error_of(chatml, json::parse(line)), HasSubstr("tools: the chat template does not use it"));
  EXPECT_THAT(
      error_of(chatml,
               {{"question", "q"}, {"answer", "a"}, {"chat_template_kwargs", {{"enable_thinking", 1}}}}),
      HasSubstr("enable_thinking: the chat template does not use it"));
  EXPECT_THAT(error_of(text, {{"question", "q"}, {"answer", "a"}, {"tools", "[1]"}}),
              HasSubstr("tools[0]: expected an object, found a number"));
}

TEST_F(SampleBuilderTest, RolesThatATemplateLeavesOutAreNotLostWithoutAWord) {
  const json messages = conversation({{"user", "q"}, {"tool", "3"}, {"assistant", "a"}});
  EXPECT_THAT(marked_samples(chatml, {{"messages", messages}}),
              ElementsAre(HasSubstr("<|im_start|>tool\n3<|im_end|>")));
  const std::string some =
      "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ m.role }}:{{ m.content }}</s>{% "
      "endif %}{% "
      "endfor %}{% if add_generation_prompt %}assistant:{% endif %}";
  EXPECT_THAT(error_of(some, {{"messages", messages}}),
              HasSubstr("messages[1].role: the chat template does not show messages of \"tool\""));
}

TEST_F(SampleBuilderTest, TurnsBehindAStopTextAreReadAsTheDecoderReadThem) {
  json record = {{"turns", {"q", "r"}},
                 {"text", {"say ", "b"}},
                 {"token_ids", {tokenizer_.encode("say the"), tokenizer_.encode("b<|im_end|>")}},
                 {"finish_reason", {"stop", "stop"}}};
  EXPECT_THAT(
      marked_samples(chatml, record),
      ElementsAre("<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n{say the}",
                  "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nsay <|im_end|>\n<|im_start|>user\nr"
                  "<|im_end|>\n<|im_start|>assistant\n{b<|im_end|>}"));
  // When the model itself ended the answer, the turns are one sample.
  record["text"][0] = "say the";
  record["token_ids"][0] = tokenizer_.encode("say the<|im_end|>");
  EXPECT_EQ(marked_samples(chatml, record).size(), 1u);
}

TEST_F(SampleBuilderTest, AnsweredListsOfPromptsAreASampleEach) {
  EXPECT_THAT(marked_samples(chatml, {{"prompt", {"p", "q"}},
                                      {"text", {"a", "b"}},
                                      {"token_ids", {{'a'}, {'b'}}},
                                      {"finish_reason", {"stop", "stop"}}}),
              ElementsAre("p{a}", "q{b}"));
  EXPECT_THAT(
      marked_samples(
          chatml, {{"prompt", {'p', 'q'}}, {"text", "a"}, {"token_ids", {'a'}}, {"finish_reason", "stop"}}),
      ElementsAre("pq{a}"));
}

// SentencePiece puts a space before a text; there must be none between a prompt and its answer.
TEST(SampleTokens, OfSentencePieceGoOnWithinTheText) {
  const auto tokenizer = Tokenizer::load(test::golden_tokenizer("sentencepiece-bpe"));
  for (const auto& [prompt, answer] : {std::pair{"The capital: ", "Paris"},
                                       {"The capital:", " Paris"},
                                       {"The word is hel", "lo"},
                                       {"Q\n", "\n\nA"},
                                       {"", "Paris is"},
                                       {"x = 12", "345 and"},
                                       {"a</s>", "the end"}}) {
    SampleTokens tokens(*tokenizer);
    tokens.append_prompt(prompt, false);
    tokens.append_answer(answer);
    const std::vector<TrainingSample> samples = tokens.finish();
    ASSERT_EQ(samples.size(), 1u);
    const std::vector<int64_t> read = tokenizer->encode(prompt);
    const auto& ids = samples[0].ids;
    ASSERT_GT(ids.size(), read.size());
    EXPECT_TRUE(std::equal(read.begin(), read.end(), ids.begin())) << prompt;
    for (size_t i = 0; i < ids.size(); ++i)
      EXPECT_EQ(samples[0].supervised[i], i >= read.size()) << prompt << i;
    EXPECT_EQ(tokenizer->decode(ids, false), std::string(prompt) + answer);
  }
}

}  // namespace
}  // namespace clover::data
