// `clover-train synthesize`: conversations of a model with itself, as a user meets them.
#include <chrono>
#include <set>
#include <thread>

#include "tests/infer/commands/output_records.h"
#include "tests/train/commands/commands_process.h"

namespace clover::train {
namespace {

class SynthesizeProcessTest : public CommandsProcessTest {
 protected:
  std::vector<std::string> synthesize(const std::string& output, int count,
                                      const std::vector<std::string>& more = {},
                                      const std::string& holdout = "0.3") const {
    // Hot enough for the random target to end its turns.
    std::vector<std::string> words{"--template",
                                   "chatml",
                                   "--output",
                                   output,
                                   "--count",
                                   std::to_string(count),
                                   "--holdout",
                                   holdout,
                                   "--temperature",
                                   "8",
                                   "--user-temperature",
                                   "8",
                                   "--user-top-p",
                                   "1",
                                   "--max-tokens",
                                   "90",
                                   "--user-max-tokens",
                                   "90"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string text_of(const std::string& file) const { return data::read_file(folder_ / file); }
};

TEST_F(SynthesizeProcessTest, ConversationsAlternateAndNoneIsThereTwice) {
  const test::Ran ran = run("synthesize", synthesize(folder_ / "talk.jsonl", 20, {"--turns", "2"}));
  ASSERT_EQ(ran.code, 0) << ran.err;
  std::set<std::string> questions;
  size_t of_two_turns = 0;
  for (const char* file : {"talk.jsonl", "talk.held-out.jsonl"}) {
    const auto records = test::records_of(folder_ / file);
    EXPECT_FALSE(records.empty()) << file;
    for (const json& record : records) {
      const json& messages = record["messages"];
      ASSERT_EQ(messages.size() % 2, 0u);
      of_two_turns += messages.size() == 4;
      for (size_t i = 0; i < messages.size(); ++i) {
        EXPECT_EQ(messages[i]["role"], i % 2 ? "assistant" : "user");
        EXPECT_NE(messages[i]["content"], "");
      }
      questions.insert(messages[0]["content"]);
    }
  }
  EXPECT_EQ(questions.size(), 20u);
  EXPECT_GT(of_two_turns, 0u);
  const json report = data::read_json(folder_ / "talk.jsonl.run.json");
  EXPECT_EQ(report["kept"], 20);
  int64_t counted = 20 + report["surplus"].get<int64_t>(), shortened = 0;
  for (const auto& [fault, count] : report["dropped"].items()) counted += count.get<int64_t>();
  for (const auto& [fault, count] : report["shortened"].items()) shortened += count.get<int64_t>();
  EXPECT_EQ(report["begun"], counted);
  EXPECT_EQ(of_two_turns + static_cast<size_t>(shortened), 20u);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "talk.jsonl.parts"));
  // They are what `prepare` reads.
  const test::Ran prepared = run(
      "prepare", {"--template", "chatml", "--input", folder_ / "talk.jsonl", "--output", folder_ / "store"});
  EXPECT_EQ(prepared.code, 0) << prepared.err;
}

TEST_F(SynthesizeProcessTest, AnInterruptedRunContinuesToTheSameBytes) {
  const auto whole = synthesize(folder_ / "whole.jsonl", 200), cut = synthesize(folder_ / "cut.jsonl", 200);
  ASSERT_EQ(run("synthesize", whole).code, 0);
  std::vector<std::string> command{CLOVER_BINARY_DIR "/bin/clover-train", "synthesize", "--target",
                                   target_.path()};
  command.insert(command.end(), cut.begin(), cut.end());
  test::Process process(folder_, command);
  const auto first_answers = folder_ / "cut.jsonl.parts/round-1-turn-1.answer.jsonl";
  for (int tries = 0; tries < 30000 && !std::filesystem::exists(first_answers); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  process.signal(SIGTERM);
  ASSERT_EQ(process.wait(), 75) << process.err();
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cut.jsonl"));
  // Other options are refused; what changes no token may differ.
  expect_refusal("synthesize", synthesize(folder_ / "cut.jsonl", 200, {"--seed", "5"}),
                 "with the same options");
  const test::Ran ran = run("synthesize", synthesize(folder_ / "cut.jsonl", 200, {"--max-batch", "3"}));
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(text_of("cut.jsonl"), text_of("whole.jsonl"));
  EXPECT_EQ(text_of("cut.held-out.jsonl"), text_of("whole.held-out.jsonl"));
}

TEST_F(SynthesizeProcessTest, FirstQuestionsAreAskedOnceAsTheyAre) {
  const auto questions =
      folder_.write("questions.jsonl",
                    "{\"prompt\": \"What is rain?\"}\n{\"turns\": [\"And snow?\", \"Why?\"]}\n"
                    "{\"prompt\": \"what is RAIN\"}\n");
  const test::Ran ran =
      run("synthesize", synthesize(folder_ / "talk.jsonl", 5, {"--first-questions", questions}, "0"));
  EXPECT_EQ(ran.code, 3);  // fewer than asked for
  EXPECT_THAT(ran.err, HasSubstr("the first questions are used up"));
  for (const json& record : test::records_of(folder_ / "talk.jsonl")) {
    const std::string question = record["messages"][0]["content"];
    EXPECT_TRUE(question == "What is rain?" || question == "And snow?") << question;
  }
  EXPECT_EQ(data::read_json(folder_ / "talk.jsonl.run.json")["dropped"]["a near-duplicate"], 1);
}

TEST_F(SynthesizeProcessTest, TopicsAreTakenInTurn) {
  const auto topics = folder_.write("topics.txt", "rain\nsnow\n");
  const test::Ran ran = run("synthesize", synthesize(folder_ / "talk.jsonl", 6, {"--topics", topics}, "0"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  for (const json& record : test::records_of(folder_ / "talk.jsonl")) {
    const std::string id = record["id"];
    const int number = std::stoi(id.substr(id.rfind('-') + 1));
    EXPECT_EQ(record["topic"], number % 2 ? "snow" : "rain") << id;
  }
}

TEST_F(SynthesizeProcessTest, WhatCannotBeIsRefusedBeforeTheModelIsRead) {
  folder_.write("there.jsonl", "mine\n");
  expect_refusal("synthesize", synthesize(folder_ / "there.jsonl", 5), "is not there yet");
  expect_refusal("synthesize", synthesize(folder_ / "new.jsonl", 0), "--count: expected 1 or more, found 0");
  expect_refusal("synthesize",
                 synthesize(folder_ / "new.jsonl", 5, {"--topics", folder_.write("none.txt", "\n")}),
                 "expected a topic on each line");
}

}  // namespace
}  // namespace clover::train
