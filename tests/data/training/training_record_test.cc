#include "data/training/training_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/files/error.h"
#include "tests/support/input_error.h"

// The forms of public data sets, and the fields beside a conversation in them.
namespace clover::data {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A record as text, "user: hi | assistant: hello"; messages that are not supervised are in brackets.
std::string summary_of(const std::string& line) {
  const TrainingRecord record = parse_training_record(line);
  if (const auto* text = std::get_if<TextRecord>(&record.content)) return "text " + text->text;
  if (const auto* text = std::get_if<CompletionRecord>(&record.content))
    return text->prompt + " + " + text->completion;
  if (const auto* answered = std::get_if<BatchOutputRecord>(&record.content)) {
    std::string summary = answered->is_chat || !answered->prompts.empty() ? "" : answered->prompt;
    for (const auto& prompt : answered->prompts)
      summary += prompt.text + std::to_string(prompt.ids.size()) + " ";
    for (const Message& message : answered->messages)
      summary += message.role + ": " + message.content + " | ";
    return summary + "answered";
  }
  const auto* chat = std::get_if<ChatRecord>(&record.content);
  if (chat == nullptr) return "tokens";
  std::string summary;
  for (size_t i = 0; i < chat->messages.size(); ++i) {
    const Message& message = chat->messages[i];
    const bool left_out =
        !chat->supervised_messages.empty() && !chat->supervised_messages[i] && message.role == "assistant";
    const std::string one = message.role + ": " + message.content;
    summary += (summary.empty() ? "" : " | ") + (left_out ? "(" + one + ")" : one);
  }
  return summary;
}

std::string refused(const std::string& line) {
  return test::input_error([&] { parse_training_record(line); });
}

TEST(TrainingRecord, IsReadInEveryShapeOfPublicData) {
  const std::pair<const char*, const char*> shapes[] = {
      {R"({"conversations":[{"role":"user","content":"hi"},{"role":"assistant","content":"yo"}]})",
       "user: hi | assistant: yo"},
      {R"({"messages":[{"from":"human","value":"hi"},{"from":"gpt","value":"yo"}]})",
       "user: hi | assistant: yo"},
      {R"({"conversations":[{"from":"user","value":"hi"},{"from":"function_call","value":"{}"},{"from":"observation","value":"3"},{"from":"gpt","value":"yo"}]})",
       "user: hi | assistant: {} | tool: 3 | assistant: yo"},
      {R"({"conversations":[{"from":"human","value":"hi"},{"from":"tool","value":"3"},{"from":"bing","value":"yo"}]})",
       "user: hi | tool: 3 | assistant: yo"},
      {R"({"prompt":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}],"completion":[{"role":"assistant","content":"d"}]})",
       "user: a | (assistant: b) | user: c | assistant: d"},
      {R"({"prompt":"2+2=","completion":"4"})", "2+2= + 4"},
      {R"({"instruction":"Add","input":"1 2","output":"3"})", "user: Add\n\n1 2 | assistant: 3"},
      {R"({"instruction":"Add","input":null,"output":"3"})", "user: Add | assistant: 3"},
      {R"({"instruction":"Add","context":"1 2","response":"3","category":"qa"})",
       "user: Add\n\n1 2 | assistant: 3"},
      {R"({"instruction":"Add","context":"","response":"3"})", "user: Add | assistant: 3"},
      {R"({"question":"Where?","context":"On a mat.","answer":"There."})",
       "user: On a mat.\n\nWhere? | assistant: There."},
      {R"({"question":"Where?","context":"On a mat.","answers":{"text":["There.","Mat"],"answer_start":[1,2]}})",
       "user: On a mat.\n\nWhere? | assistant: There."},
      {R"({"question":"Where?","answers":[{"text":"There."}]})", "user: Where? | assistant: There."},
      {R"({"system_prompt":"Short.","question":"a","response":"b"})",
       "system: Short. | user: a | assistant: b"},
      {R"({"query":"a","response":"b"})", "user: a | assistant: b"},
      {R"({"conversation":[{"system":"s","input":"hi","output":"yo"},{"input":"a","output":"b"}]})",
       "system: s | user: hi | assistant: yo | user: a | assistant: b"},
      {R"({"instruction":"c","output":"d","history":[["a","b"]]})",
       "user: a | assistant: b | user: c | assistant: d"},
      {R"({"messages":null,"prompt":null,"completion":null,"conversations":null,"instruction":null,"text":"t"})",
       "text t"},
      {R"({"messages":null,"text":null,"instruction":"i","input":null,"output":"o"})",
       "user: i | assistant: o"},
      {R"({"error":"","text":"t"})", "text t"},
      {R"({"error":{},"text":"t"})", "text t"},
      {R"({"prompt":"p","messages":null,"text":"a","token_ids":[1],"finish_reason":"stop"})", "panswered"},
      {R"({"messages":[{"role":"user","content":"a"}],"prompt":null,"loss_mask":[1],"text":"a","token_ids":[1],"finish_reason":"stop","usage":{"a":1},"steps":1,"line":1})",
       "user: a | answered"},
      {R"({"prompt":["p"],"text":"a","token_ids":[1],"finish_reason":"stop"})", "p0 answered"},
      {R"({"prompt":[5,6],"text":"a","token_ids":[1],"finish_reason":"stop"})", "2 answered"},
      {R"({"prompt":["p","q"],"text":["a","b"],"token_ids":[[1],[2]],"finish_reason":["stop","stop"]})",
       "p0 q0 answered"},
      {R"({"prompt":[[5],[6,7]],"text":["a","b"],"token_ids":[[1],[2]],"finish_reason":["stop","stop"]})",
       "1 2 answered"},
      {R"({"turns":["a"],"system":"s","text":["b"],"token_ids":[[1]],"finish_reason":["stop"]})",
       "system: s | user: a | answered"},
  };
  for (const auto& [line, expected] : shapes) EXPECT_EQ(summary_of(line), expected) << line;
}

TEST(TrainingRecord, ASystemMessageBesideAConversationIsItsFirst) {
  for (const char* rest : {R"("messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}])",
                           R"("conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}])",
                           R"("question":"a","answer":"b")", R"("instruction":"a","output":"b")"}) {
    for (const char* name : {"system", "system_prompt", "system_message"})
      EXPECT_EQ(summary_of(std::string("{\"") + name + "\":\"s\"," + rest + "}"),
                "system: s | user: a | assistant: b");
    EXPECT_EQ(summary_of(std::string("{\"system\":\"\",") + rest + "}"), "user: a | assistant: b");
    EXPECT_EQ(summary_of(std::string("{\"system\":null,") + rest + "}"), "user: a | assistant: b");
    EXPECT_THAT(refused(std::string("{\"system\":5,") + rest + "}"), HasSubstr("system: expected a string"));
  }
  EXPECT_EQ(
      summary_of(
          R"({"system":"s","messages":[{"role":"system","content":"s"},{"role":"assistant","content":"b"}]})"),
      "system: s | assistant: b");
}

TEST(TrainingRecord, TurnsThatAreNotToBeLearnedAreNot) {
  const auto chat = [](const char* first, const char* last, const char* beside) {
    return std::string(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b")") +
           first + R"(},{"role":"user","content":"c"},{"role":"assistant","content":"d")" + last + "}]" +
           beside + "}";
  };
  const std::string expected = "user: a | (assistant: b) | user: c | assistant: d";
  EXPECT_EQ(summary_of(chat(R"(,"weight":0)", R"(,"weight":1)", "")), expected);
  EXPECT_EQ(summary_of(chat(R"(,"weight":0.0)", "", "")), expected);
  EXPECT_EQ(summary_of(chat(R"(,"train":false)", "", "")), expected);
  EXPECT_EQ(summary_of(chat(R"(,"loss":false)", "", "")), expected);
  EXPECT_EQ(summary_of(chat(R"(,"loss_mask":0)", R"(,"loss_mask":1)", "")), expected);
  EXPECT_EQ(summary_of(chat("", "", R"(,"loss_mask":[0,0,0,1],"system":"s")")), "system: s | " + expected);
  EXPECT_EQ(summary_of(chat(R"(,"weight":null)", "", "")), "user: a | assistant: b | user: c | assistant: d");
  EXPECT_EQ(
      summary_of(
          R"({"conversations":[{"from":"human","value":"a","weight":1},{"from":"gpt","value":"b","weight":0},{"from":"human","value":"c"},{"from":"gpt","value":"d"}]})"),
      expected);

  EXPECT_THAT(refused(chat(R"(,"weight":0.5)", "", "")), HasSubstr("messages[1].weight: expected 0 or 1"));
  EXPECT_THAT(refused(chat(R"(,"train":"no")", "", "")), HasSubstr("messages[1].train: expected 0 or 1"));
  EXPECT_THAT(refused(chat("", "", R"(,"loss_mask":[0,1])")),
              HasSubstr("loss_mask: expected as many values as messages"));
  EXPECT_THAT(refused(chat("", "", R"(,"loss_mask":[1,0,0,1])")), HasSubstr("loss_mask[0]: expected 0"));
  EXPECT_THAT(refused(R"({"text":"a","weight":0.25})"), HasSubstr("weight: expected 0 or 1"));
  EXPECT_THAT(refused(R"({"text":"a","train":false})"), HasSubstr("train: expected 1, or no such record"));
  EXPECT_EQ(summary_of(R"({"text":"a","weight":1.0,"train":true})"), "text a");
}

TEST(TrainingRecord, WhatHasNoPlaceBesideAFormIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"messages":[{"role":"assistant","content":"b"}],"history":[["a","b"]]})", "history"},
      {R"({"messages":[{"role":"assistant","content":"b"}],"context":"c"})", "context"},
      {R"({"conversations":[{"from":"gpt","value":"b"}],"context":"c"})", "context"},
      {R"({"prompt":"a","completion":"b","system":"s"})", "system"},
      {R"({"prompt":"a","completion":"b","tools":[{"name":"f"}]})", "tools"},
      {R"({"prompt":"a","completion":"b","context":"c"})", "context"},
      {R"({"text":"a","documents":[{"text":"d"}]})", "documents"},
      {R"({"question":"a","answer":"b","history":[["a"]]})", "history[0]"},
      {R"({"question":"a","answer":"b","history":"a"})", "history"},
      {R"({"question":"a","answers":{"text":[]}})", "answers.text"},
      {R"({"question":"a","answer":"b","chat_template_kwargs":"x"})", "chat_template_kwargs"},
      {R"({"question":"a","answer":"b","chat_template_kwargs":{"messages":[]}})", "chat_template_kwargs"},
      {R"({"question":"a","answer":"b","tools":{"a":1}})", "tools"},
  };
  for (const auto& [line, name] : cases)
    EXPECT_THAT(refused(line), ::testing::StartsWith(std::string(name) + ": expected")) << line;
  EXPECT_EQ(
      summary_of(
          R"({"messages":[{"role":"assistant","content":"b"}],"history":[],"context":"","tools":null,"mine":{"a":1}})"),
      "assistant: b");
}

TEST(TrainingRecord, ACategoryIsTextWhateverItWas) {
  const auto category = [](const char* value) {
    return parse_training_record(std::string(R"({"text":"a","category":)") + value + "}").category;
  };
  EXPECT_EQ(category(R"("x")"), "x");
  EXPECT_EQ(category("3"), "3");
  EXPECT_EQ(category("null"), "");
  EXPECT_EQ(category("true"), "true");
  EXPECT_EQ(category(R"(["a"])"), R"(["a"])");
}

}  // namespace
}  // namespace clover::data
