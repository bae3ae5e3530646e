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
                                      const std::string& holdout = "0.3",
                                      const std::string& user_tokens = "90") const {
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
                                   user_tokens};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string text_of(const std::string& file) const { return data::read_file(folder_ / file); }
};

TEST_F(SynthesizeProcessTest, ConversationsAlternateAndNoneIsThereTwice) {
  const test::Ran ran = run("synthesize", synthesize(folder_ / "talk.jsonl", 20, {"--turns", "2"}));
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("kept 20 of 20"));
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
  // <|im_start|>, which the random target says at times.
  EXPECT_GT(report["dropped"]["with markup"].get<int64_t>(), 0);
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
                 "it was begun with seed 0, not 5");
  folder_.write("cut.held-out.jsonl", "of a run that was killed between its last writes\n");
  const test::Ran ran = run("synthesize", synthesize(folder_ / "cut.jsonl", 200, {"--max-batch", "3"}));
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(text_of("cut.jsonl"), text_of("whole.jsonl"));
  EXPECT_EQ(text_of("cut.held-out.jsonl"), text_of("whole.held-out.jsonl"));
}

TEST_F(SynthesizeProcessTest, FirstQuestionsAreAskedOnceAsTheyAre) {
  std::set<std::string> questions{"And snow?"};
  std::string lines = "{\"turns\": [\"And snow?\", \"Why?\"]}\n";
  for (const char* word : {"rain", "tea", "wood", "gold", "time", "music", "light"}) {
    questions.insert("What is " + std::string(word) + "?");
    lines += "{\"prompt\": \"What is " + std::string(word) + "?\"}\n";
  }
  const auto file = folder_.write("questions.jsonl", lines + "{\"prompt\": \"what is RAIN\"}\n");
  folder_.write("talk.held-out.jsonl", "mine\n");  // no business of a run that holds nothing out
  const test::Ran ran =
      run("synthesize", synthesize(folder_ / "talk.jsonl", 20, {"--first-questions", file}, "0"));
  EXPECT_EQ(ran.code, 3) << ran.err;  // fewer than asked for
  EXPECT_THAT(ran.err, HasSubstr("the first questions are used up"));
  const auto records = test::records_of(folder_ / "talk.jsonl");
  EXPECT_FALSE(records.empty());
  for (const json& record : records) {
    const std::string question = record["messages"][0]["content"];
    EXPECT_EQ(questions.erase(question), 1u) << question;
  }
  EXPECT_EQ(data::read_json(folder_ / "talk.jsonl.run.json")["dropped"]["a near-duplicate"], 1);
  EXPECT_EQ(text_of("talk.held-out.jsonl"), "mine\n");
}

TEST_F(SynthesizeProcessTest, TopicsAreTakenInTurn) {
  const auto topics = folder_.write("topics.txt", "rain\nsnow\n");
  const test::Ran ran =
      run("synthesize", synthesize(folder_ / "talk.jsonl", 6, {"--topics", topics}, "0.0001"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  auto records = test::records_of(folder_ / "talk.jsonl");
  const auto held_out = test::records_of(folder_ / "talk.held-out.jsonl");
  EXPECT_EQ(records.size(), 5u);
  EXPECT_EQ(held_out.size(), 1u);  // of two or more at least one, however small the share
  records.insert(records.end(), held_out.begin(), held_out.end());
  for (const json& record : records) {
    const std::string id = record["id"];
    const int number = std::stoi(id.substr(id.rfind('-') + 1));
    EXPECT_EQ(record["topic"], number % 2 ? "snow" : "rain") << id;
  }
}

TEST_F(SynthesizeProcessTest, WhereNoConversationIsGoodTheCountsSayWhy) {
  const auto topics = folder_.write("topics.txt", "rain\nsnow\n");
  const auto words = synthesize(folder_ / "talk.jsonl", 5, {"--topics", topics}, "0.3", /*user_tokens=*/"1");
  const test::Ran ran = run("synthesize", words);
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("None of 321 conversations was good ("));
  EXPECT_THAT(ran.err, HasSubstr(" truncated"));
  EXPECT_THAT(ran.err, testing::Not(HasSubstr("give --topics")));  // they were given
  EXPECT_FALSE(fs::exists(folder_ / "talk.jsonl"));
  // What was asked is left there.  The user speaks about the topics in turn; ids are ASCII, and two more.
  const auto requests = test::records_of(folder_ / "talk.jsonl.parts/round-1-turn-1.user.requests.jsonl");
  ASSERT_GE(requests.size(), 2u);
  for (size_t i = 0; i < requests.size(); ++i) {
    std::string prompt;
    for (const int64_t id : requests[i]["prompt"].get<std::vector<int64_t>>())
      if (id < 128) prompt += static_cast<char>(id);
    EXPECT_THAT(prompt, HasSubstr(i % 2 ? "topic: snow" : "topic: rain"));
  }
  folder_.write("topics.txt", "rain\nhail\n");
  expect_refusal("synthesize", words, "it was begun with contents of --topics");
}

TEST_F(SynthesizeProcessTest, WhereTooFewAreGoodThoseAreWritten) {
  // Requests about 24 of 25 topics do not fit into the context of 256 tokens.
  std::string lines = "rain\n";
  for (int i = 0; i < 24; ++i) lines.append(300, 'a').append(1, '\n');
  const auto topics = folder_.write("topics.txt", lines);
  const test::Ran ran = run("synthesize", synthesize(folder_ / "talk.jsonl", 400, {"--topics", topics}, "0"));
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("400 were asked for: too few of those begun are good (dropped: "));
  EXPECT_THAT(ran.err, HasSubstr("The first request that failed says: "));
  const auto records = test::records_of(folder_ / "talk.jsonl");
  EXPECT_FALSE(records.empty());
  const json report = data::read_json(folder_ / "talk.jsonl.run.json");
  EXPECT_EQ(report["kept"], records.size());
  EXPECT_GT(report["dropped"]["failed"].get<int64_t>(), 300);
  EXPECT_FALSE(fs::exists(folder_ / "talk.jsonl.parts"));
}

TEST_F(SynthesizeProcessTest, WhatCannotBeIsRefusedBeforeTheModelIsRead) {
  folder_.write("there.jsonl", "mine\n");
  expect_refusal("synthesize", synthesize(folder_ / "there.jsonl", 5), "is not there yet");
  expect_refusal("synthesize", synthesize(folder_ / "new.jsonl", 0), "--count: expected 1 or more, found 0");
  const auto expect_bad_topics = [&](const std::string& topics, const std::string& message) {
    expect_refusal("synthesize", synthesize(folder_ / "new.jsonl", 5, {"--topics", topics}), message);
  };
  expect_bad_topics(folder_.write("none.txt", "\n"), "expected a topic on each line");
  expect_bad_topics(folder_.write("bytes.txt", "rain\n\xff\n"), "bytes.txt, line 2: expected UTF-8");
  expect_bad_topics(folder_.write("long.txt", std::string(5000, 'a')),
                    "long.txt, line 1: expected a topic of at most 4096 bytes");
  expect_bad_topics(folder_.path(), "expected a regular file");
  EXPECT_FALSE(fs::exists(folder_ / "new.jsonl.parts"));
}

TEST_F(SynthesizeProcessTest, AFolderOfOtherFilesIsLeftAlone) {
  fs::create_directory(folder_ / "talk.jsonl.parts");
  folder_.write("talk.jsonl.parts/notes.txt", "mine\n");
  expect_refusal("synthesize", synthesize(folder_ / "talk.jsonl", 5), "found one with other files");
  EXPECT_EQ(text_of("talk.jsonl.parts/notes.txt"), "mine\n");
}

}  // namespace
}  // namespace clover::train
