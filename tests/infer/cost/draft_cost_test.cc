// How deep `auto` drafts follows from what levels cost and from what their guesses are worth.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/infer/engine/measured_model.h"

namespace clover::infer {
namespace {

constexpr int64_t most = 6;
constexpr double pass = 0.01, row = 0.0002;

/// A machine where a level takes `level` seconds for each sequence, and a chain's guesses hold each with
/// probability `likely`.
struct Machine {
  double level, likely;

  double draft_seconds(int64_t sequences, int64_t levels) const {
    return 0.0001 + level * static_cast<double>(sequences * levels);
  }
  static double pass_seconds(int64_t rows) { return pass + row * static_cast<double>(rows); }
  /// Tokens a second where all of `levels` guesses are verified.
  double rate(int64_t sequences, int64_t levels) const {
    double tokens = 1;
    for (int64_t depth = 1; depth <= levels; ++depth) tokens += std::pow(likely, depth);
    return static_cast<double>(sequences) * tokens /
           (pass_seconds(sequences * (levels + 1)) + draft_seconds(sequences, levels));
  }
};

/// How often each number of levels was drafted in 300 steps of `auto`, after 200 in which it learns.
std::vector<int64_t> levels_drafted(const Machine& machine, int64_t sequences) {
  CostModel model = measured(Machine::pass_seconds);
  std::vector<int64_t> counts(most + 1);
  for (int step = 0; step < 500; ++step) {
    std::vector<CandidateTree> trees(sequences, CandidateTree::of_root(0));
    const bool drafts = model.worth_drafting(contexts(sequences));
    if (drafts) {
      const int64_t levels = model.draft_levels(sequences, most);
      counts[levels] += step >= 200;
      for (CandidateTree& tree : trees)
        for (int32_t depth = 0; depth < levels; ++depth)
          tree.add(depth, depth, static_cast<float>(std::pow(machine.likely, depth + 1)));
      model.observe_draft(sequences, machine.draft_seconds(sequences, levels));
    }
    model.trim(trees, contexts(sequences), drafts ? sequences : 0);
    const int64_t rows = sequences + nodes_of(trees);
    model.observe_pass(rows, 0, Machine::pass_seconds(rows));
    for (size_t i = 0; i < trees.size(); ++i) {  // the n-th of ten steps accepts so many guesses
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
  for (const int64_t sequences : {1, 4}) {
    for (const Machine& machine : {Machine{1e-6, 0.8}, Machine{0.0003, 0.8}, Machine{0.001, 0.7},
                                   Machine{0.002, 0.8}, Machine{0.0005, 0.5}}) {
      SCOPED_TRACE(testing::Message() << sequences << " sequences, a level takes " << machine.level
                                      << " s, likely " << machine.likely);
      double best = 0;
      for (int64_t levels = 1; levels <= most; ++levels)
        best = std::max(best, machine.rate(sequences, levels));
      if (best < 1.1 * static_cast<double>(sequences) / Machine::pass_seconds(sequences)) continue;
      const std::vector<int64_t> counts = levels_drafted(machine, sequences);
      const int64_t usual = std::ranges::max_element(counts) - counts.begin();
      EXPECT_GT(machine.rate(sequences, usual), 0.96 * best) << usual << " levels";
      EXPECT_GT(counts[most], 0) << "nobody looks any deeper";
    }
  }
}

TEST(DraftLevels, AreAllWhereLevelsAreFreeAndFewWhereTheyAreDear) {
  EXPECT_GT(levels_drafted({1e-6, 0.8}, 1)[most], 250);
  EXPECT_LT(levels_drafted({0.002, 0.8}, 1)[most], 50);
}

TEST(DraftCost, RunsStraightBetweenLevelsThatWereTimed) {
  DraftCost cost;
  EXPECT_EQ(cost.at(2, 3), 0);
  cost.observe(2, 3, 0.008);
  EXPECT_TRUE(cost.knows(2, 1));
  EXPECT_NEAR(cost.at(2, 1), 0.004, 1e-12);  // reading rows counts as a level
  EXPECT_NEAR(cost.at(2, 5), 0.012, 1e-12);
  cost.observe(2, 1, 0.005);
  EXPECT_NEAR(cost.at(2, 2), 0.0065, 1e-12);
}

}  // namespace
}  // namespace clover::infer
