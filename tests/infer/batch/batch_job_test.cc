#include "infer/batch/batch_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "data/files/error.h"
#include "tests/infer/requests/tiny_tokenizer.h"
#include "tests/support/temporary_folder.h"

namespace clover::infer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Finishes the request queued last first, one a step, and answers with the number of prompt tokens.
class ScriptedDecoder : public Decoder {
 public:
  void submit(Request request) override {
    if (request.prompt.size() == 13) throw data::InputError("thirteen tokens are refused");
    most_waiting = std::max(most_waiting, waiting() + 1);
    queue.push_back(std::move(request));
  }
  std::vector<Completion> step() override {
    ++steps;
    const Request request = queue.back();
    queue.pop_back();
    Completion answer;
    answer.tag = request.tag;
    answer.prompt_tokens = static_cast<int64_t>(request.prompt.size());
    answer.token_ids = {answer.prompt_tokens, 257};
    answer.text = "n" + std::to_string(answer.prompt_tokens);
    answer.finish_reason = "stop";
    answer.steps = 1;
    answer.accepted_histogram = {1};
    prompts.push_back(request.prompt);
    return {answer};
  }
  int64_t waiting() const override { return static_cast<int64_t>(queue.size()); }
  bool idle() const override { return queue.empty(); }

  std::vector<Request> queue;
  std::vector<std::vector<int64_t>> prompts;  // in order of completion
  int64_t most_waiting = 0;
  int64_t steps = 0;
};

std::string bytes_of(const std::vector<int64_t>& ids) {
  std::string text;
  for (const int64_t id : ids)
    text += id < 256 ? std::string(1, static_cast<char>(id)) : id == 256 ? "<S>" : "<E>";
  return text;
}

class BatchJobTest : public testing::Test {
 protected:
  BatchJobTest() { test::write_tiny_tokenizer(folder); }

  BatchJob::Outcome run(
      const std::string& input, const std::function<bool()>& stop = [] { return false; },
      bool retry_errors = false) {
    settings.input = folder.write("in.jsonl", input);
    settings.context = 1000;
    settings.max_waiting = 4;
    const FileSummary summary = summarise_file(settings.input);
    BatchOutput output(folder / "out.jsonl",
                       {{"settings", json::object()},
                        {"affects_output", json::object()},
                        {"input", {{"lines", summary.lines}, {"hash", summary.hash}}}},
                       retry_errors);
    const PromptEncoder encoder(folder.path().string(), "chatml");
    BatchJob job(settings, encoder, decoder, output);
    return job.run(stop, [](const BatchJob::Outcome&) {});
  }

  // Output records by line; each line must be there once.
  std::map<int64_t, json> by_line() {
    std::map<int64_t, json> records;
    for (const json& record : test::records_of(folder / "out.jsonl")) {
      EXPECT_TRUE(records.emplace(line_of_record(record), record).second) << record;
    }
    return records;
  }

  test::TemporaryFolder folder;
  ScriptedDecoder decoder;
  BatchJobSettings settings;
};

std::string many_prompts(int count) {
  std::string lines;
  for (int i = 1; i <= count; ++i)
    lines += "{\"prompt\": \"" + std::string(20 + i, 'a') + "\", \"id\": " + std::to_string(i) + "}\n";
  return lines;
}

TEST_F(BatchJobTest, AnswersWithTheInputsFieldsAndItsOwn) {
  const auto outcome = run(R"({"prompt": "abc", "id": "x", "category": "c", "note": [1]})"
                           "\n");
  EXPECT_EQ(outcome.answered, 1);
  EXPECT_EQ(outcome.by_category.at("c").tokens, 2);
  const json record = by_line().at(1);
  EXPECT_EQ(record, (json{{"prompt", "abc"},
                          {"id", "x"},
                          {"category", "c"},
                          {"note", {1}},
                          {"line", 1},
                          {"text", "n3"},
                          {"token_ids", {3, 257}},
                          {"finish_reason", "stop"},
                          {"steps", 1},
                          {"usage", {{"prompt_tokens", 3}, {"completion_tokens", 2}, {"total_tokens", 5}}}}));
}

TEST_F(BatchJobTest, RendersConversationsAndAnswersEveryTurn) {
  run(R"({"turns": ["Hi", "Bye"]})"
      "\n");
  ASSERT_EQ(decoder.prompts.size(), 2u);
  EXPECT_THAT(bytes_of(decoder.prompts[0]), HasSubstr("<S>user\nHi<E>\n<S>assistant\n"));
  const std::string first_answer = "n" + std::to_string(decoder.prompts[0].size());
  EXPECT_EQ(bytes_of(decoder.prompts[1]),
            bytes_of(decoder.prompts[0]) + first_answer + "<E>\n<S>user\nBye<E>\n<S>assistant\n");
  const json record = by_line().at(1);
  EXPECT_EQ(record["text"][0], first_answer);
  EXPECT_EQ(record["token_ids"].size(), 2u);
  EXPECT_EQ(record["finish_reason"], json({"stop", "stop"}));
  EXPECT_EQ(record["usage"][1]["prompt_tokens"], decoder.prompts[1].size());
  EXPECT_EQ(record["steps"], json({1, 1}));
}

TEST_F(BatchJobTest, AnswersOpenAiRequestsInTheirForm) {
  run(R"({"custom_id": "q", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}})"
      "\n"
      R"({"custom_id": "r", "method": "POST", "url": "/v1/completions", "body": {"model": "m", "prompt": "abc"}})"
      "\n");
  const auto records = by_line();
  const json& chat = records.at(1);
  EXPECT_EQ(chat["custom_id"], "q");
  EXPECT_TRUE(chat["error"].is_null());
  EXPECT_EQ(chat["response"]["status_code"], 200);
  const json& body = chat["response"]["body"];
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["model"], "m");
  EXPECT_EQ(body["choices"][0]["message"]["role"], "assistant");
  EXPECT_THAT(body["choices"][0]["message"]["content"].get<std::string>(), testing::StartsWith("n"));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["usage"]["completion_tokens"], 2);
  EXPECT_FALSE(chat.contains("token_ids"));
  EXPECT_EQ(records.at(2)["response"]["body"]["choices"][0]["text"], "n3");
  EXPECT_EQ(records.at(2)["response"]["body"]["object"], "text_completion");
}

TEST_F(BatchJobTest, AnswersEachOfSeveralPromptsAsAChoice) {
  const std::string input =
      R"({"custom_id": "q", "url": "/v1/completions", "body": {"prompt": ["abc", "abcde", "a"]}})"
      "\n"
      R"({"prompt": ["ab", "abcd"], "id": "s"})"
      "\n"
      R"({"prompt": [7, 8, 9, 10], "id": "t"})"
      "\n"
      R"({"prompt": ["a", "aaaaaaaaaaaaa", "ab"], "id": "u"})"  // the second is refused, the first under way
      "\n";
  const auto outcome = run(input);
  EXPECT_EQ(outcome.answered, 3);
  EXPECT_EQ(outcome.failed, 1);
  const auto records = by_line();
  const json& body = records.at(1)["response"]["body"];
  ASSERT_EQ(body["choices"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], "n" + std::to_string(i == 0 ? 3 : i == 1 ? 5 : 1));
  }
  EXPECT_EQ(body["usage"], (json{{"prompt_tokens", 9}, {"completion_tokens", 6}, {"total_tokens", 15}}));
  EXPECT_EQ(records.at(2)["text"], json({"n2", "n4"}));
  EXPECT_EQ(records.at(2)["token_ids"], json({{2, 257}, {4, 257}}));
  EXPECT_EQ(records.at(3)["text"], "n4");
  EXPECT_THAT(records.at(4)["error"]["message"].get<std::string>(), HasSubstr("thirteen"));
  decoder = {};
  EXPECT_EQ(run(input).answered, 0) << "all is done";
  EXPECT_EQ(decoder.steps, 0);
}

TEST_F(BatchJobTest, RestartsAnUnfinishedLineOfSeveralPrompts) {
  settings.stats_file = (folder / "stats.jsonl").string();
  std::string input;
  for (int i = 1; i <= 5; ++i)
    input += R"({"prompt": ["a", "ab", "abc"], "id": )" + std::to_string(i) + "}\n";
  const auto stopped = run(input, [this] { return decoder.steps == 7; });
  EXPECT_TRUE(stopped.interrupted);
  const int64_t before = stopped.answered;
  EXPECT_LT(before, 5);
  decoder = {};
  EXPECT_EQ(run(input).answered, 5 - before);
  EXPECT_EQ(decoder.steps, 3 * (5 - before));
  for (const auto& [line, record] : by_line()) EXPECT_EQ(record["text"], json({"n1", "n2", "n3"})) << line;
  EXPECT_EQ(by_line().size(), 5u);
  EXPECT_EQ(test::records_of(folder / "stats.jsonl").size(), 5u);
}

TEST_F(BatchJobTest, GivesNumbersBackAsTheyWereWritten) {
  const std::string input =
      R"({"prompt": "abc", "id": 12345678901234567890123, "line": 1.50, "verify": 2.50, )"
      R"("run": {"big": [98765432109876543210987, 1e400, 0.10, 1E5]}})"
      "\n"
      R"({"custom_id": 1.0, "id": 7.50, "url": "/v1/completions", "body": {"prompt": "abc"}})"
      "\n"
      R"({"id": 1e999, "nothing": 1})"
      "\n";
  run(input);
  const std::string text = test::text_of(folder / "out.jsonl");
  EXPECT_THAT(text, HasSubstr(R"("id":12345678901234567890123,)"));
  EXPECT_THAT(text, HasSubstr(R"("run":{"big":[98765432109876543210987,1e400,0.10,1E5]})"));
  EXPECT_THAT(text, HasSubstr(R"("line":1,)"));
  EXPECT_THAT(text, testing::Not(HasSubstr("2.50")));
  EXPECT_THAT(text, HasSubstr(R"("custom_id":1.0,)"));
  EXPECT_THAT(text, HasSubstr(R"("id":"batch_req_2")"));
  EXPECT_THAT(text, HasSubstr(R"("id":1e999,)"));
  decoder = {};
  EXPECT_EQ(run(input).answered, 0) << "what was written is read back";
}

TEST_F(BatchJobTest, ContinuesAfterBadLines) {
  const auto outcome = run("{\"prompt\": \"abc\"}\nnonsense\n\n" + std::string("{\"prompt\": \"") +
                           std::string(2000, 'a') + "\"}\n" + "{\"prompt\": \"" + std::string(13, 'a') +
                           "\", \"id\": \"odd\"}\n{\"prompt\": \"abcd\"}\n");
  EXPECT_EQ(outcome.answered, 2);
  EXPECT_EQ(outcome.failed, 3);
  EXPECT_FALSE(outcome.interrupted);
  const auto records = by_line();
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(records.at(1)["text"], "n3");
  EXPECT_THAT(records.at(2)["error"]["message"].get<std::string>(), HasSubstr("JSON"));
  EXPECT_THAT(records.at(4)["error"]["message"].get<std::string>(), HasSubstr("fewer than 1000"));
  EXPECT_EQ(records.at(5)["id"], "odd");
  EXPECT_THAT(records.at(5)["error"]["message"].get<std::string>(), HasSubstr("thirteen"));
  EXPECT_EQ(records.at(6)["text"], "n4");
}

TEST_F(BatchJobTest, KeepsOnlyAFewRequestsWaiting) {
  EXPECT_EQ(run(many_prompts(50)).answered, 50);
  EXPECT_EQ(decoder.most_waiting, 4);
  EXPECT_EQ(by_line().size(), 50u);
}

TEST_F(BatchJobTest, StopsBetweenStepsAndContinuesWithWhatIsMissing) {
  const auto stopped = run(many_prompts(20), [this] { return decoder.steps == 7; });
  EXPECT_TRUE(stopped.interrupted);
  EXPECT_EQ(stopped.answered, 7);
  EXPECT_EQ(by_line().size(), 7u);
  decoder = {};
  const auto continued = run(many_prompts(20));
  EXPECT_FALSE(continued.interrupted);
  EXPECT_EQ(continued.answered, 13);
  EXPECT_EQ(decoder.steps, 13);
  const auto records = by_line();
  ASSERT_EQ(records.size(), 20u);
  for (const auto& [line, record] : records) EXPECT_EQ(record["text"], "n" + std::to_string(20 + line));
}

TEST_F(BatchJobTest, DoesNothingWhenAllIsDone) {
  run(many_prompts(3));
  decoder = {};
  EXPECT_EQ(run(many_prompts(3)).answered, 0);
  EXPECT_EQ(decoder.steps, 0);
  EXPECT_EQ(by_line().size(), 3u);
}

TEST_F(BatchJobTest, RemembersIdsOfLinesThatWereDoneBefore) {
  const std::string input = many_prompts(2) + "{\"prompt\": \"again\", \"id\": 1}\n";
  run(input, [this] { return decoder.steps == 1; });
  decoder = {};  // another process
  run(input);
  EXPECT_THAT(by_line().at(3)["error"]["message"].get<std::string>(), HasSubstr("earlier line"));
}

TEST_F(BatchJobTest, DoesFailedLinesAgainWhenAsked) {
  const std::string input = "nonsense\n{\"prompt\": \"abc\"}\n";
  EXPECT_EQ(run(input).failed, 1);
  EXPECT_EQ(run(input).failed, 0);  // not again by itself
  EXPECT_EQ(run(
                input, [] { return false; }, true)
                .failed,
            1);
  EXPECT_EQ(by_line().size(), 2u);
}

TEST_F(BatchJobTest, WritesStatsOnceALineAcrossContinuedRuns) {
  settings.stats_file = (folder / "stats.jsonl").string();
  run(many_prompts(9), [this] { return decoder.steps == 4; });
  decoder = {};
  // A kill between the two writes leaves a record of a line that is not done.
  std::ofstream(folder / "stats.jsonl", std::ios::app) << R"({"line": 9, "steps": 5})"
                                                          "\n"
                                                          R"({"line": )";
  run(many_prompts(9));
  std::map<int64_t, int> seen;
  for (const json& record : test::records_of(folder / "stats.jsonl")) {
    ++seen[record["line"].get<int64_t>()];
    EXPECT_EQ(record["accepted_histogram"], json::array({1}));
  }
  EXPECT_EQ(seen.size(), 9u);
  for (const auto& [line, times] : seen) EXPECT_EQ(times, 1) << line;
}

TEST_F(BatchJobTest, MarksLossyAnswers) {
  settings.typical = true;
  run("{\"prompt\": \"abc\"}\n");
  EXPECT_EQ(by_line().at(1)["verify"], "typical");
}

}  // namespace
}  // namespace clover::infer
