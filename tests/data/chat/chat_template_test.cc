#include "data/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/files/files.h"
#include "tests/support/goldens.h"
#include "tests/support/input_error.h"
#include "tests/support/temporary_folder.h"

namespace clover::data {
namespace {

using nlohmann::json;
using test::input_error;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ChatTemplateTest : public ::testing::Test {
 protected:
  ChatTemplate load_from(const json& tokenizer_config, const std::string& name = "") {
    write_file_atomically(folder_ / "tokenizer_config.json", tokenizer_config.dump());
    return ChatTemplate::load(folder_, name);
  }

  const test::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

std::vector<Message> messages_of(const json& list) {
  std::vector<Message> messages;
  for (const json& message : list) messages.push_back({message["role"], message["content"]});
  return messages;
}

std::vector<std::string> answers(const RenderedChat& chat) {
  std::vector<std::string> texts;
  for (const auto& [begin, end] : chat.assistant_spans) texts.push_back(chat.text.substr(begin, end - begin));
  return texts;
}

TEST_F(ChatTemplateTest, RendersLikeJinja) {
  const json cases = read_json(test::goldens() / "chat_templates.json");
  for (const json& one : cases) {
    const ChatTemplate format = load_from(one["tokenizer_config"], one["asked"]);
    EXPECT_EQ(format.name(), one["name"]) << one["case"];
    for (const json& expected : one["rendered"]) {
      const RenderedChat chat =
          format.render(messages_of(expected["messages"]), expected["generation_prompt"]);
      EXPECT_EQ(chat.text, expected["text"]) << one["case"];
    }
  }
}

TEST_F(ChatTemplateTest, JinjaFileWinsOverTheConfig) {
  write_file_atomically(folder_ / "chat_template.jinja",
                        "<|im_start|>system\nFrom the file.<|im_end|>\n{{ messages[0].content }}");
  const ChatTemplate format = load_from({{"chat_template", "<|start_header_id|> <|eot_id|>"}});
  EXPECT_THAT(format.render({{"user", "x"}}, false).text, HasSubstr("From the file."));
}

TEST_F(ChatTemplateTest, ListOfTemplatesHasADefault) {
  const json tool = {{"name", "tool_use"}, {"template", "?"}};
  const json plain = {{"name", "default"}, {"template", "plain {{ messages[0].content }}"}};
  EXPECT_EQ(load_from({{"chat_template", {tool, plain}}}).render({{"user", "x"}}, true).text, "plain x");
}

TEST_F(ChatTemplateTest, OneThatDoesNotEndIsRefusedWhenItIsRead) {
  const char* endless =
      "{% for a in range(99999) %}{% for b in range(99999) %}{% set c = b %}{% endfor %}{% endfor %}";
  EXPECT_THAT(input_error([&] {
                load_from({{"chat_template", endless}});
              }),
              AllOf(HasSubstr(folder_.string()), HasSubstr("the template does not come to an end"),
                    HasSubstr("name the format to use")));
}

TEST_F(ChatTemplateTest, WhatCannotBeReadListsTheKnownNames) {
  const auto lists_names = HasSubstr("chatml, qwen3, qwen3-no-think, llama-2, llama-3, vicuna, none, jinja");
  for (const json& config : {json::object(), json{{"chat_template", "{{ messages"}},
                             json{{"chat_template", "{% call x %}"}}, json{{"chat_template", 5}}}) {
    EXPECT_THAT(input_error([&] { load_from(config); }), AllOf(lists_names, HasSubstr(folder_.string())));
  }
  EXPECT_THAT(input_error([&] { load_from(json::object(), "alpaca"); }),
              AllOf(HasSubstr("alpaca"), lists_names));
  EXPECT_THAT(input_error([&] { load_from(json::object(), "jinja"); }), HasSubstr("found none"));
}

const std::vector<Message> two_turns = {
    {"user", "q"}, {"assistant", "one"}, {"user", "r"}, {"assistant", "two"}};

TEST_F(ChatTemplateTest, AnyOtherTemplateIsRenderedAsItSays) {
  const ChatTemplate format =
      load_from({{"bos_token", "<s>"},
                 {"eos_token", {{"content", "</s>"}}},
                 {"chat_template",
                  "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + "
                  "' [/INST]' }}"
                  "{% elif m.role == 'assistant' %}{{ ' ' + m.content | trim + eos_token }}"
                  "{% else %}{{ raise_exception('no system message, please') }}{% endif %}{% endfor %}"}});
  EXPECT_EQ(format.name(), "jinja");
  EXPECT_TRUE(format.text_has_bos());
  const RenderedChat chat = format.render(two_turns, false);
  EXPECT_EQ(chat.text, "<s>[INST] q [/INST] one</s>[INST] r [/INST] two</s>");
  EXPECT_THAT(answers(chat), ::testing::ElementsAre(" one</s>", " two</s>"));
  EXPECT_THAT(input_error([&] {
                format.render({{"system", "s"}, {"user", "q"}}, true);
              }),
              HasSubstr("no system message, please"));
}

// Text after an end token is written by the template, before and after an answer.
TEST_F(ChatTemplateTest, AnswersOfAnyTemplateBeginBehindTheirPromptAndEndWithTheirEndToken) {
  const std::string turns =
      "{% for m in messages %}<turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content "
      "}}<end>\n\n"
      "{% endfor %}{% if add_generation_prompt %}<turn>model\n{% endif %}";
  const ChatTemplate format = load_from({{"chat_template", turns}});
  const RenderedChat chat = format.render(two_turns, false);
  EXPECT_THAT(answers(chat), ::testing::ElementsAre("one<end>", "two<end>"));
  EXPECT_EQ(format.render({two_turns[0]}, true).text, chat.text.substr(0, chat.assistant_spans[0].first));

  const ChatTemplate marked = load_from(
      {{"chat_template",
        "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}{{ m.content }}."
        "{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}"}});
  EXPECT_THAT(answers(marked.render(two_turns, false)), ::testing::ElementsAre("one.", "two."));

  const ChatTemplate forgetful = load_from({{"chat_template",
                                             "{% for m in messages %}<{{ m.role }}>{{ m.content if loop.last "
                                             "or m.role == 'user' else '...' }}{% endfor %}"
                                             "{% if add_generation_prompt %}<assistant>{% endif %}"}});
  EXPECT_THAT(answers(forgetful.render(two_turns, false)), ::testing::ElementsAre("two"))
      << "the model would not see its first answer";
}

// Phi-3's template ends a conversation with a token that follows no answer inside it.
TEST_F(ChatTemplateTest, WhatClosesAConversationIsNoPartOfItsAnswers) {
  const ChatTemplate format =
      load_from({{"eos_token", "<|endoftext|>"},
                 {"chat_template",
                  "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
                  "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"}});
  const RenderedChat chat = format.render(two_turns, false);
  EXPECT_THAT(answers(chat), ::testing::ElementsAre("one<|end|>", "two<|end|>"));
  EXPECT_TRUE(chat.text.ends_with("two<|end|>\n<|endoftext|>"));
  EXPECT_THAT(answers(format.render({two_turns[0], two_turns[1], two_turns[2]}, false)),
              ::testing::ElementsAre("one<|end|>"));
}

// A template that looks like a built-in format, but was not verified, is rendered by the Jinja engine.
TEST_F(ChatTemplateTest, TheTemplatesOwnTextDecides) {
  const std::string plain =
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}";
  const std::string prompt = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  const auto text_of = [&](const std::string& text, const std::vector<Message>& messages) {
    return load_from({{"chat_template", text}}).text(messages, true);
  };
  EXPECT_EQ(text_of(plain, {{"user", "x"}}), "<|im_start|>user\nx<|im_end|>\n") << "it opens no answer";
  const std::string no_empty =
      "{% for m in messages if m.content %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
      "{% endfor %}";
  EXPECT_EQ(text_of(no_empty + prompt, {{"user", "x"}, {"assistant", ""}, {"user", "y"}}),
            "<|im_start|>user\nx<|im_end|>\n<|im_start|>user\ny<|im_end|>\n<|im_start|>assistant\n");
  const std::string long_ones_cut =
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content[:40] + '<|im_end|>\n' }}{% "
      "endfor %}";
  EXPECT_EQ(text_of(long_ones_cut + prompt, {{"user", std::string(50, 'a')}}),
            "<|im_start|>user\n" + std::string(40, 'a') + "<|im_end|>\n<|im_start|>assistant\n");
  const std::string alternating =
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}";
  EXPECT_THAT(input_error([&] {
                text_of(alternating + plain, {{"user", "x"}, {"user", "y"}});
              }),
              HasSubstr("roles must alternate"));
  EXPECT_EQ(load_from({{"chat_template", alternating + plain + prompt}}).name(), "jinja");
  EXPECT_THAT(input_error([&] {
                load_from({{"chat_template", plain + "{{ messages | no_such_filter }}"}});
              }),
              AllOf(HasSubstr("no_such_filter"), HasSubstr("line 3")))
      << "once, when it is read, and not for every request";
}

TEST_F(ChatTemplateTest, AProvedTemplateIsTheFormatsToTheByte) {
  const std::string smollm =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
      "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% "
      "endif %}";
  EXPECT_EQ(load_from({{"chat_template", smollm}}).name(), "chatml");
  EXPECT_EQ(load_from({{"chat_template", smollm + " "}}).name(), "jinja");
  EXPECT_EQ(load_from({{"chat_template", smollm}}, "jinja").text(two_turns, true),
            load_from({{"chat_template", smollm}}).text(two_turns, true));
}

TEST_F(ChatTemplateTest, NamedFormatKeepsTheFoldersSystemPrompt) {
  const json config = {{"chat_template", "{{'<|im_start|>system\nDefault.<|im_end|>\n'}}<|im_start|>user"}};
  EXPECT_EQ(load_from(config, "chatml").render({{"user", "x"}}, false).text,
            "<|im_start|>system\nDefault.<|im_end|>\n<|im_start|>user\nx<|im_end|>\n");
  EXPECT_EQ(load_from(json::object(), "chatml").render({{"user", "x"}}, true).text,
            "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(ChatTemplateTest, AssistantSpansEndWithTheEndToken) {
  const auto spans_of = [&](const std::string& name) {
    return answers(load_from(json::object(), name).render(two_turns, false));
  };
  const auto list = [](const std::string& a, const std::string& b) { return std::vector<std::string>{a, b}; };
  EXPECT_EQ(spans_of("chatml"), list("one<|im_end|>", "two<|im_end|>"));
  EXPECT_EQ(spans_of("llama-3"), list("one<|eot_id|>", "two<|eot_id|>"));
  EXPECT_EQ(spans_of("llama-2"), list(" one </s>", " two </s>"));
  EXPECT_EQ(spans_of("vicuna"), list(" one</s>", " two</s>"));
  EXPECT_EQ(spans_of("none"), list("one", "two"));
}

// In training and in generation the same text must stand before an answer.
TEST_F(ChatTemplateTest, PromptIsWhatStandsBeforeTheAnswer) {
  const std::vector<Message> question = {{"system", "s"}, {"user", "q"}};
  std::vector<Message> whole = question;
  whole.push_back({"assistant", "a"});
  for (const std::string& name : ChatTemplate::known_names()) {
    if (name == "jinja") continue;  // any other
    const ChatTemplate format = load_from(json::object(), name);
    const RenderedChat chat = format.render(whole, false);
    ASSERT_EQ(chat.assistant_spans.size(), 1u);
    EXPECT_EQ(format.render(question, true).text, chat.text.substr(0, chat.assistant_spans[0].first)) << name;
  }
}

TEST_F(ChatTemplateTest, NoneJoinsTheContents) {
  EXPECT_EQ(load_from(json::object(), "none")
                .render({{"user", "a "}, {"user", "b"}, {"assistant", "c"}}, true)
                .text,
            "a bc");
}

TEST_F(ChatTemplateTest, RefusesWhatTheFormatCannotSay) {
  const auto error = [&](const std::string& name, const std::vector<Message>& messages) {
    return input_error([&] { load_from(json::object(), name).render(messages, false); });
  };
  EXPECT_THAT(error("chatml", {}), HasSubstr("at least one message"));
  EXPECT_THAT(error("chatml", {{"user", "a"}, {"robot", "b"}}),
              AllOf(HasSubstr("messages[1]"), HasSubstr("robot")));
  EXPECT_THAT(error("llama-2", {{"user", "a"}, {"user", "b"}}), HasSubstr("messages[1]"));
  EXPECT_THAT(error("vicuna", {{"assistant", "a"}}), HasSubstr("messages[0]"));
  EXPECT_THAT(error("llama-2", {{"user", "a"}, {"system", "b"}}), HasSubstr("messages[1]"));
  EXPECT_EQ(error("chatml", {{"user", "a"}, {"user", "b"}}), "");
}

TEST_F(ChatTemplateTest, HashTellsFormatsApart) {
  const std::string plain = load_from(json::object(), "chatml").hash();
  EXPECT_EQ(plain, load_from(json::object(), "chatml").hash());
  EXPECT_NE(plain, load_from(json::object(), "none").hash());
  EXPECT_NE(plain, load_from({{"chat_template", "'<|im_start|>system\nS<|im_end|>'"}}).hash());
  EXPECT_EQ(plain.size(), 16u);
}

// Stores and unfinished jobs record the hash, so it must not change: the expected value was recorded at
// commit fa1cccc.
TEST_F(ChatTemplateTest, HashOfOwnTemplatesIsThatOfBefore) {
  const json config = {
      {"bos_token", "<|im_start|>"},
      {"eos_token", "<|im_end|>"},
      {"pad_token", "<|im_end|>"},
      {"unk_token", "<|endoftext|>"},
      {"chat_template",
       "{% for m in messages %}{{ '[' + m['role'] + ']\n' + m['content'] | trim + eos_token + '\n' }}"
       "{% endfor %}{% if add_generation_prompt %}{{ '[assistant]\n' }}{% endif %}"}};
  EXPECT_EQ(load_from(config).hash(), "9866cc274085858f");
  // Special tokens of other files enter the hash when the template names them.
  write_file_atomically(folder_ / "special_tokens_map.json", R"({"mask_token": "<mask>"})");
  EXPECT_EQ(load_from(config).hash(), "9866cc274085858f");
  write_file_atomically(folder_ / "special_tokens_map.json", R"({"eos_token": "</s>"})");
  EXPECT_NE(load_from(config).hash(), "9866cc274085858f");
}

}  // namespace
}  // namespace clover::data
