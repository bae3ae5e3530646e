// The number of levels that `auto` drafts depends on their time and on how likely their guesses are accepted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/infer/engine/measured_model.h"

namespace clover::infer {
namespace {

constexpr int64_t most = 6;
constexpr double pass = 0.01, row = 0.0002;

/// A machine on which drafting a level takes `shared` seconds and `level` more for each drafted sequence.
/// Each guess of a chain is accepted with probability `likely` if the one before it is.
struct Machine {
  double level, likely, shared = 0;

  double draft_seconds(int64_t drafted, int64_t levels) const {
    return 0.0001 + (level * static_cast<double>(drafted) + shared) * static_cast<double>(levels);
  }
  static double pass_seconds(int64_t rows) { return pass + row * static_cast<double>(rows); }
  /// Tokens per second if `levels` guesses are verified for each of `drafted` sequences of a batch.
  double rate(int64_t batch, int64_t drafted, int64_t levels) const {
    double guessed = 0;
    for (int64_t depth = 1; depth <= levels; ++depth) guessed += std::pow(likely, depth);
    return (static_cast<double>(batch) + static_cast<double>(drafted) * guessed) /
           (pass_seconds(batch + drafted * levels) + draft_seconds(drafted, levels));
  }
};

/// How often each number of levels was drafted in 300 steps of `auto`, after 200 in which it learns.  The
/// heads draft for the first `drafted` sequences of the batch.
std::vector<int64_t> levels_drafted(const Machine& machine, int64_t batch, int64_t drafted) {
  CostModel model = measured(Machine::pass_seconds);
  std::vector<int64_t> counts(most + 1);
  for (int step = 0; step < 500; ++step) {
    std::vector<CandidateTree> trees(batch, CandidateTree::of_root(0));
    const bool drafts = model.worth_drafting(contexts(batch));
    if (drafts) {
      const int64_t levels = model.draft_levels(contexts(batch), drafted, most);
      counts[levels] += step >= 200;
      for (CandidateTree& tree : std::span(trees).first(drafted))
        for (int32_t depth = 0; depth < levels; ++depth)
          tree.add(depth, depth, static_cast<float>(std::pow(machine.likely, depth + 1)));
      model.observe_draft(drafted, machine.draft_seconds(drafted, levels));
    }
    model.trim(trees, contexts(batch), drafts ? drafted : 0);
    const int64_t rows = batch + nodes_of(trees);
    model.observe_pass(rows, 0, Machine::pass_seconds(rows));
    for (size_t i = 0; i < trees.size(); ++i) {  // of every hundred steps as many accept as are likely to
      std::vector<int32_t> accepted{0};
      const double drawn = static_cast<double>((step * 7 + static_cast<int>(i) * 3) % 100 + 0.5) / 100;
      while (std::ssize(accepted) < trees[i].size() && drawn < std::pow(machine.likely, accepted.size()))
        accepted.push_back(static_cast<int32_t>(accepted.size()));
      model.observe_tree(trees[i], accepted);
    }
  }
  return counts;
}

TEST(DraftLevels, AreThoseThatMakeTokensASecondLargest) {
  int64_t tried = 0;
  for (const auto& [batch, drafted] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {4, 4}, {16, 4}}) {
    for (const Machine& machine :
         {Machine{1e-6, 0.8}, Machine{0.0003, 0.8}, Machine{0.001, 0.7}, Machine{0.002, 0.8},
          Machine{0.0005, 0.5}, Machine{0, 0.9, 0.0008}, Machine{0, 0.8, 0.0004}, Machine{0, 0.8, 0.002}}) {
      SCOPED_TRACE(testing::Message()
                   << batch << " sequences, " << drafted << " drafted, a level takes " << machine.level
                   << " + " << machine.shared << " s, likely " << machine.likely);
      double best = 0;
      for (int64_t levels = 1; levels <= most; ++levels)
        best = std::max(best, machine.rate(batch, drafted, levels));
      if (best < 1.1 * static_cast<double>(batch) / Machine::pass_seconds(batch)) continue;
      ++tried;
      const std::vector<int64_t> counts = levels_drafted(machine, batch, drafted);
      const int64_t usual = std::max_element(counts.begin(), counts.end()) - counts.begin();
      EXPECT_GT(machine.rate(batch, drafted, usual), 0.96 * best) << usual << " levels";
      EXPECT_GT(counts[most], 0) << "nobody looks any deeper";
    }
  }
  EXPECT_GT(tried, 12);
}

TEST(DraftLevels, AreAllWhereLevelsAreFreeAndFewWhereTheyAreDear) {
  EXPECT_GT(levels_drafted({1e-6, 0.8}, 1, 1)[most], 250);
  EXPECT_LT(levels_drafted({0.002, 0.8}, 1, 1)[most], 50);
}

// A level that has not been drafted for long is judged by how it does now.
TEST(DraftCost, BelievesANewTrialOfAnOldLevel) {
  DraftCost cost;
  const DraftCost::Step step{.sequences = 1, .drafted = 1, .plain_seconds = 0.01, .seconds_per_row = 0};
  const auto draft = [&](int64_t times, double of_level_2) {
    int64_t deep = 0;
    for (int64_t i = 0; i < times; ++i) {
      const int64_t levels = cost.next_levels(step, 2);
      deep += levels == 2;
      cost.observe(1, levels, 0.001 * static_cast<double>(levels));
      std::vector<DraftCost::Level> seen{{0.8, 1}, {of_level_2, 1}};
      seen.resize(levels);
      cost.observe_levels(1, seen);
    }
    return deep;
  };
  draft(200, 0.6);
  EXPECT_GT(draft(100, 0.6), 90);
  draft(400, 0);
  EXPECT_LT(draft(100, 0), 10);
  draft(400, 0.6);
  EXPECT_GT(draft(100, 0.6), 90);
}

TEST(DraftCost, RunsStraightBetweenLevelsThatWereTimed) {
  DraftCost cost;
  EXPECT_EQ(cost.expected_seconds(2, 3), 0);
  cost.observe(2, 3, 0.008);
  EXPECT_TRUE(cost.has_timings(2, 1));
  EXPECT_NEAR(cost.expected_seconds(2, 1), 0.004, 1e-12);  // reading rows counts as a level
  EXPECT_NEAR(cost.expected_seconds(2, 5), 0.012, 1e-12);
  cost.observe(2, 1, 0.005);
  EXPECT_NEAR(cost.expected_seconds(2, 2), 0.0065, 1e-12);
}

}  // namespace
}  // namespace clover::infer
