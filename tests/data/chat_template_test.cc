#include "data/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "data/error.h"
#include "data/files.h"
#include "tests/support/temporary_folder.h"

namespace clover::data {
namespace {

using nlohmann::json;
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

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "(no error)";
}

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
  const json cases =
      read_json(std::filesystem::path(CLOVER_SOURCE_DIR) / "tests" / "golden" / "chat_templates.json");
  for (const json& one : cases) {
    const ChatTemplate format = load_from(one["tokenizer_config"]);
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
                        "<|im_start|>system\nFrom the file.<|im_end|>\n{% for %}<|im_start|>...");
  const ChatTemplate format = load_from({{"chat_template", "<|start_header_id|> <|eot_id|>"}});
  EXPECT_EQ(format.name(), "chatml");
  EXPECT_THAT(format.render({{"user", "x"}}, false).text, HasSubstr("From the file."));
}

TEST_F(ChatTemplateTest, ListOfTemplatesHasADefault) {
  const json tool = {{"name", "tool_use"}, {"template", "?"}};
  const json plain = {{"name", "default"}, {"template", "[INST] <<SYS>>"}};
  EXPECT_EQ(load_from({{"chat_template", {tool, plain}}}).name(), "llama-2");
}

TEST_F(ChatTemplateTest, UnknownTemplateListsTheKnownNames) {
  for (const json& config :
       {json::object(), json{{"chat_template", "{{ messages }}"}},
        json{{"chat_template", "<|im_start|> <|im_end|> <think>"}}, json{{"chat_template", 5}}}) {
    EXPECT_THAT(error_of([&] { load_from(config); }),
                AllOf(HasSubstr("chatml, llama-2, llama-3, vicuna, none"), HasSubstr(folder_.string())));
  }
  EXPECT_THAT(error_of([&] { load_from(json::object(), "alpaca"); }),
              AllOf(HasSubstr("alpaca"), HasSubstr("chatml, llama-2, llama-3, vicuna, none")));
}

TEST_F(ChatTemplateTest, NamedFormatKeepsTheFoldersSystemPrompt) {
  const json config = {{"chat_template", "{{'<|im_start|>system\nDefault.<|im_end|>\n'}}<|im_start|>user"}};
  EXPECT_EQ(load_from(config, "chatml").render({{"user", "x"}}, false).text,
            "<|im_start|>system\nDefault.<|im_end|>\n<|im_start|>user\nx<|im_end|>\n");
  EXPECT_EQ(load_from(json::object(), "chatml").render({{"user", "x"}}, true).text,
            "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(ChatTemplateTest, AssistantSpansEndWithTheEndToken) {
  const std::vector<Message> talk = {
      {"user", "q"}, {"assistant", "one"}, {"user", "r"}, {"assistant", "two"}};
  const auto spans_of = [&](const std::string& name) {
    return answers(load_from(json::object(), name).render(talk, false));
  };
  const auto list = [](const std::string& a, const std::string& b) { return std::vector<std::string>{a, b}; };
  EXPECT_EQ(spans_of("chatml"), list("one<|im_end|>", "two<|im_end|>"));
  EXPECT_EQ(spans_of("llama-3"), list("one<|eot_id|>", "two<|eot_id|>"));
  EXPECT_EQ(spans_of("llama-2"), list(" one </s>", " two </s>"));
  EXPECT_EQ(spans_of("vicuna"), list(" one</s>", " two</s>"));
  EXPECT_EQ(spans_of("none"), list("one", "two"));
}

// Training and generation must read the same text before an answer.
TEST_F(ChatTemplateTest, PromptIsWhatStandsBeforeTheAnswer) {
  const std::vector<Message> question = {{"system", "s"}, {"user", "q"}};
  std::vector<Message> whole = question;
  whole.push_back({"assistant", "a"});
  for (const std::string& name : ChatTemplate::known_names()) {
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
    return error_of([&] { load_from(json::object(), name).render(messages, false); });
  };
  EXPECT_THAT(error("chatml", {}), HasSubstr("at least one message"));
  EXPECT_THAT(error("chatml", {{"user", "a"}, {"robot", "b"}}),
              AllOf(HasSubstr("messages[1]"), HasSubstr("robot")));
  EXPECT_THAT(error("llama-2", {{"user", "a"}, {"user", "b"}}), HasSubstr("messages[1]"));
  EXPECT_THAT(error("vicuna", {{"assistant", "a"}}), HasSubstr("messages[0]"));
  EXPECT_THAT(error("llama-2", {{"user", "a"}, {"system", "b"}}), HasSubstr("messages[1]"));
  EXPECT_EQ(error("chatml", {{"user", "a"}, {"user", "b"}}), "(no error)");
}

TEST_F(ChatTemplateTest, HashTellsFormatsApart) {
  const std::string plain = load_from(json::object(), "chatml").hash();
  EXPECT_EQ(plain, load_from(json::object(), "chatml").hash());
  EXPECT_NE(plain, load_from(json::object(), "none").hash());
  EXPECT_NE(plain, load_from({{"chat_template", "'<|im_start|>system\nS<|im_end|>'"}}).hash());
  EXPECT_EQ(plain.size(), 16u);
}

}  // namespace
}  // namespace clover::data
