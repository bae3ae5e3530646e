#include "infer/batch/rank_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <set>

#include "data/files/error.h"
#include "tests/infer/commands/output_records.h"
#include "tests/support/input_error.h"
#include "tests/support/temporary_folder.h"

namespace clover::infer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class Ranks : public testing::Test {
 protected:
  RankOutput begin(int64_t number, int64_t count, bool retry_errors = false) {
    return RankOutput(file, {number, count}, run, retry_errors);
  }

  // Answers the next `most` lines of this rank and returns their numbers.
  static std::set<int64_t> answer_some(RankOutput& rank, int64_t most) {
    std::set<int64_t> lines;
    for (int64_t line = 1; line <= input_lines && std::ssize(lines) < most; ++line) {
      if (!rank.claim(line)) continue;
      rank.shard().write(line, answer(line));
      lines.insert(line);
    }
    return lines;
  }

  std::multiset<int64_t> lines_of_output() const {
    std::multiset<int64_t> lines;
    for (const json& record : test::records_of(file)) lines.insert(line_of_record(record));
    return lines;
  }
  static std::multiset<int64_t> all_lines() {
    std::multiset<int64_t> lines;
    for (int64_t line = 1; line <= input_lines; ++line) lines.insert(line);
    return lines;
  }

  static constexpr int64_t input_lines = 3000;  // chunks of two lines, and a last one
  test::TemporaryFolder folder;
  std::filesystem::path file = folder / "out.jsonl";
  std::filesystem::path shared = folder / "out.jsonl.ranks";
  json run = {{"settings", json::object()},
              {"affects_output", {{"seed", 1}}},
              {"input", {{"lines", input_lines}, {"hash", "aa"}}}};
};

TEST_F(Ranks, KeepOtherFilesInTheFolder) {
  std::filesystem::create_directories(shared / "notes");
  RankOutput only = begin(0, 2);
  answer_some(only, input_lines);
  EXPECT_TRUE(only.finish().last);
  EXPECT_EQ(lines_of_output(), all_lines());
  EXPECT_TRUE(std::filesystem::exists(shared / "notes"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(shared), {}), 1);
}

TEST_F(Ranks, ShareTheLinesAndLeaveOneOutput) {
  RankOutput first = begin(0, 3), second = begin(1, 3), third = begin(2, 3);
  const std::set<int64_t> some = answer_some(first, 100), others = answer_some(second, 500);
  for (const int64_t line : others) EXPECT_EQ(some.count(line), 0u);
  answer_some(third, 10);
  answer_some(first, input_lines);
  EXPECT_FALSE(first.finish().last);
  EXPECT_EQ(answer_some(second, input_lines).size(), 0u);
  EXPECT_FALSE(third.finish().last);
  const RankOutput::MergeResult merged = second.finish();
  EXPECT_TRUE(merged.last);
  EXPECT_EQ(merged.done, input_lines);
  EXPECT_EQ(merged.failed, 0);
  EXPECT_EQ(lines_of_output(), all_lines());
  EXPECT_FALSE(std::filesystem::exists(shared));
}

TEST_F(Ranks, ContinueInAnyNumberAfterAKill) {
  {
    std::vector<RankOutput> killed;  // never finish: their locks go with them
    for (int64_t rank = 0; rank < 4; ++rank) killed.push_back(begin(rank, 4));
    for (RankOutput& rank : killed) answer_some(rank, 300);
  }
  {
    RankOutput first = begin(0, 2), second = begin(1, 2);
    EXPECT_EQ(lines_of_output().size(), 1200u);
    answer_some(second, 200);
    answer_some(first, 300);
    first.finish();
  }  // the second is killed
  RankOutput::merge_abandoned_shards(file, run);
  EXPECT_FALSE(std::filesystem::exists(shared));
  BatchOutput alone(file, run, false);
  EXPECT_EQ(alone.done_count(), 1700);
  for (int64_t line = 1; line <= input_lines; ++line)
    if (!alone.done(line)) alone.write(line, answer(line));
  EXPECT_EQ(lines_of_output(), all_lines());
}

TEST_F(Ranks, WhatAllOfThemTookIsSummed) {
  {
    RankOutput killed = begin(0, 2);
    answer_some(killed, 10);
    killed.shard().set_cost({1, 100});
    killed.shard().sync();
  }
  RankOutput first = begin(0, 2), second = begin(1, 2);
  first.shard().set_cost({2, 200});
  second.shard().set_cost({4, 400});
  answer_some(first, 10);
  answer_some(second, input_lines);
  first.shard().save_cost();
  second.shard().save_cost();
  first.finish();
  EXPECT_TRUE(second.finish().last);
  const AnsweringCost cost = recorded_cost(json::parse(test::text_of(run_file_of(file)))).value();
  EXPECT_EQ(cost.seconds, 7);
  EXPECT_EQ(cost.tokens, 700);
}

TEST_F(Ranks, TheLastOneReportsLinesThatAKilledOneLeft) {
  std::optional<RankOutput> first = begin(0, 2), second = begin(1, 2);
  answer_some(*first, 40);
  first->claim(input_lines);
  first.reset();
  answer_some(*second, input_lines);
  const RankOutput::MergeResult merged = second->finish();
  EXPECT_TRUE(merged.last);
  EXPECT_LT(merged.done, input_lines);
  EXPECT_GE(merged.done, input_lines - 2);
}

TEST_F(Ranks, MergeATornShardWithoutItsTornLine) {
  {
    RankOutput rank = begin(0, 2);
    answer_some(rank, 10);
    std::ofstream(shared / "rank-0.jsonl", std::ios::app) << R"({"line": 11, "tok)";
  }
  RankOutput::merge_abandoned_shards(file, run);
  EXPECT_EQ(lines_of_output().size(), 10u);
}

TEST_F(Ranks, RefuseARankThatIsTakenAndAMissingFolder) {
  const RankOutput first = begin(0, 2);
  EXPECT_THROW(begin(0, 2), data::InputError);  // the same rank twice
  EXPECT_THROW(RankOutput::merge_abandoned_shards(file, run), data::InputError);
  EXPECT_THAT(test::input_error([&] {
                RankOutput(folder / "missing" / "out.jsonl", {1, 2}, run, false);
              }),
              HasSubstr("missing"));
}

TEST_F(Ranks, LeaveTheAnswersOfOtherSettingsAlone) {
  {
    RankOutput killed = begin(0, 2);
    answer_some(killed, 10);
  }
  run["affects_output"]["seed"] = 2;
  EXPECT_THROW(begin(0, 2), data::InputError);
  EXPECT_THROW(RankOutput::merge_abandoned_shards(file, run), data::InputError);
  run["affects_output"]["seed"] = 1;
  RankOutput::merge_abandoned_shards(file, run);
  EXPECT_EQ(lines_of_output().size(), 10u);
  run["affects_output"]["seed"] = 2;
  EXPECT_THROW(begin(0, 2), data::InputError);
  EXPECT_FALSE(std::filesystem::exists(shared));
}

TEST_F(Ranks, AreRefusedBesideOthersWithOtherSettings) {
  RankOutput first = begin(0, 2);  // has answered nothing yet
  run["affects_output"]["seed"] = 2;
  EXPECT_THROW(begin(1, 2), data::InputError);
  run["affects_output"]["seed"] = 1;
  RankOutput second = begin(1, 2);
  answer_some(first, input_lines);
  first.finish();
  EXPECT_EQ(second.finish().done, input_lines);
}

TEST_F(Ranks, RetryErrorsOnceAndNotThoseOfOthersAtWork) {
  {
    BatchOutput before(file, run, false);
    before.write(1, answer(1));
    before.write(2, failure(2));
    before.write(3, failure(3));
  }
  RankOutput first = begin(0, 2, true);
  EXPECT_FALSE(first.claim(1));
  EXPECT_TRUE(first.claim(2));
  first.shard().write(2, failure(2));
  RankOutput second = begin(1, 2, true);
  answer_some(second, input_lines);
  answer_some(first, input_lines);
  first.finish();
  const RankOutput::MergeResult merged = second.finish();
  EXPECT_EQ(merged.done, input_lines);
  EXPECT_EQ(merged.failed, 1);
  EXPECT_EQ(lines_of_output(), all_lines());
}

}  // namespace
}  // namespace clover::infer
