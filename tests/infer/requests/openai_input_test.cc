// Requests in the format of OpenAI's batch API.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/requests/batch_input.h"
#include "tests/infer/requests/batch_lines.h"

namespace clover::infer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(BatchInput, ReadsOpenAiChatRequests) {
  const BatchLine line = read_valid(openai_chat({{"model", "m"},
                                                 {"messages", hello},
                                                 {"max_completion_tokens", 5},
                                                 {"temperature", 0.5},
                                                 {"top_p", 0.9},
                                                 {"seed", 11},
                                                 {"stop", "END"},
                                                 {"n", 1},
                                                 {"stream", false},
                                                 {"logprobs", nullptr},
                                                 {"presence_penalty", 0.0},
                                                 {"user", "someone"}}));
  EXPECT_EQ(line.shape, LineShape::chat);
  EXPECT_TRUE(line.openai());
  EXPECT_EQ(line.id, "a-1");
  EXPECT_EQ(line.sampling.max_tokens, 5);
  EXPECT_EQ(line.sampling.rule.temperature, 0.5);
  EXPECT_EQ(line.sampling.rule.top_p, 0.9);
  EXPECT_EQ(line.sampling.seed, 11u);
  EXPECT_EQ(line.sampling.stop, std::vector<std::string>{"END"});
}

TEST(BatchInput, ReadsOpenAiCompletionRequests) {
  const BatchLine line =
      read_valid({{"custom_id", "c"},
                  {"method", "POST"},
                  {"url", "/v1/completions"},
                  {"body", {{"prompt", "Once"}, {"max_tokens", 4}, {"stop", {"a", "b"}}}}});
  EXPECT_EQ(line.shape, LineShape::completion);
  EXPECT_EQ(line.prompt, "Once");
  EXPECT_EQ(line.sampling.max_tokens, 4);
  EXPECT_EQ(line.sampling.stop, (std::vector<std::string>{"a", "b"}));
}

TEST(BatchInput, TakesListsOfPromptsAsOpenAiDoes) {
  const auto prompts = [](const json& prompt) {
    const json body = {{"prompt", prompt}, {"max_tokens", 4}};
    const BatchLine line = read_valid({{"custom_id", "c"}, {"url", "/v1/completions"}, {"body", body}});
    const BatchLine short_form = read_valid({{"prompt", prompt}});
    EXPECT_EQ(short_form.prompt, line.prompt);
    EXPECT_EQ(short_form.prompt_count(), line.prompt_count());
    return line;
  };
  EXPECT_EQ(prompts(json::array({"Once"})).prompt, "Once");
  EXPECT_EQ(prompts(json::array({"Once"})).prompt_count(), 1u);
  const BatchLine two = prompts({"Once", "Twice"});
  ASSERT_EQ(two.prompt_count(), 2u);
  EXPECT_EQ(two.prompts[1].text, "Twice");
  EXPECT_NE(two.random_key(0).request, two.random_key(1).request);
  const BatchLine ids = prompts({5, 7.0, 9});
  ASSERT_EQ(ids.prompt_count(), 1u);
  EXPECT_EQ(ids.prompts[0].ids, (std::vector<int64_t>{5, 7, 9}));
  const BatchLine lists = prompts({{5, 7}, {9}});
  ASSERT_EQ(lists.prompt_count(), 2u);
  EXPECT_EQ(lists.prompts[1].ids, (std::vector<int64_t>{9}));
}

TEST(BatchInput, TakesWhatClientsWriteForNothing) {
  const std::vector<std::pair<std::string, json>> parameters = {
      {"temperature", 0},
      {"top_k", -1},
      {"top_k", 0},
      {"max_tokens", 4.0},
      {"n", 1},
      {"n", 1.0},
      {"best_of", 1},
      {"seed", INT64_MAX},
      {"seed", 5.0},
      {"stop", nullptr},
      {"stop", ""},
      {"stop", json::array()},
      {"stream", false},
      {"stream_options", nullptr},
      {"stream_options", {{"include_usage", true}}},
      {"logprobs", nullptr},
      {"logprobs", false},
      {"top_logprobs", 0},
      {"response_format", {{"type", "text"}}},
      {"response_format", {{"type", "text"}, {"json_schema", nullptr}}},
      {"tools", json::array()},
      {"tools", nullptr},
      {"tool_choice", "none"},
      {"tool_choice", "auto"},
      {"function_call", "auto"},
      {"parallel_tool_calls", true},
      {"user", "me"},
      {"metadata", {{"a", 1}}},
      {"store", false},
      {"service_tier", "auto"},
      {"modalities", {"text"}},
      {"guided_json", ""},
      {"skip_special_tokens", true},
      {"include_stop_str_in_output", false},
      {"add_special_tokens", false},
      {"priority", 3},
      {"echo", false},
      {"max_completion_tokens", 7},
      {"model", nullptr}};
  for (const auto& [name, value] : parameters) {
    const BatchLine line = read_valid(openai_chat({{"messages", hello}, {name, value}}));
    EXPECT_EQ(line.sampling.rule.top_k, 0) << name;
    EXPECT_TRUE(line.sampling.stop.empty()) << name;
    EXPECT_EQ(line.sampling.max_tokens, name == "max_tokens" ? 4 : name == "max_completion_tokens" ? 7 : 512);
    EXPECT_EQ(line.sampling.seed, name == "seed" ? value.get<uint64_t>() : 0) << name;
  }
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, json>>{{"skip_special_tokens", false},
                                                 {"add_special_tokens", true},
                                                 {"response_format", "text"},
                                                 {"tool_choice", "required"},
                                                 {"tool_choice", {{"type", "function"}}},
                                                 {"n", true},
                                                 {"stream", 1}})
    EXPECT_THAT(read_invalid_record(openai_chat({{"messages", hello}, {name, value}})).message,
                HasSubstr(name));
  const json tool = {{"type", "function"}};
  EXPECT_THAT(
      read_invalid_record(openai_chat({{"messages", hello}, {"tools", {tool}}, {"tool_choice", "auto"}}))
          .message,
      HasSubstr("tool"));
}

TEST(BatchInput, RefusesEveryOpenAiParameterItWouldHaveToIgnore) {
  const std::vector<std::pair<std::string, json>> parameters = {
      {"n", 2},
      {"stream", true},
      {"logprobs", true},
      {"top_logprobs", 3},
      {"tools", json::array({{{"type", "function"}}})},
      {"response_format", {{"type", "json_object"}}},
      {"no_such_parameter", 1}};
  for (const auto& [name, value] : parameters) {
    const BadLine line = read_invalid_record(openai_chat({{"messages", hello}, {name, value}}));
    EXPECT_THAT(line.message, HasSubstr(name));
    EXPECT_TRUE(line.openai);
  }
}

TEST(BatchInput, RefusesOpenAiRequestsItCannotServe) {
  json record = openai_chat({{"messages", hello}});
  record["url"] = "/v1/embeddings";
  EXPECT_THAT(read_invalid_record(record).message, HasSubstr("url"));
  record = openai_chat({{"messages", hello}});
  record["method"] = "GET";
  EXPECT_THAT(read_invalid_record(record).message, HasSubstr("method"));
  record["method"] = "POST";
  record.erase("body");
  EXPECT_THAT(read_invalid_record(record).message, HasSubstr("body"));
  EXPECT_THAT(read_invalid_record(openai_chat({{"prompt", "a"}})).message, HasSubstr("messages"));
  record = openai_chat({{"messages", hello}});
  record["max_tokens"] = 1;
  EXPECT_THAT(read_invalid_record(record).message,
              HasSubstr("max_tokens: expected within \"body\", found beside it"));
}

TEST(BatchInput, ShapesOpenAiErrorsLikeOpenAi) {
  const json record = read_invalid_record(openai_chat({{"messages", hello}, {"n", 2}})).record();
  EXPECT_EQ(record["custom_id"], "a-1");
  EXPECT_TRUE(record["response"].is_null());
  EXPECT_TRUE(record["error"].contains("code"));
  EXPECT_THAT(record["error"]["message"].get<std::string>(), HasSubstr("n is not supported"));
}

}  // namespace
}  // namespace clover::infer
