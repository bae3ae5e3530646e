#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/infer/engine/measured_model.h"

namespace clover::infer {
namespace {

CandidateTree random_tree(std::mt19937_64& random, int64_t nodes) {
  CandidateTree tree = CandidateTree::of_root(1);
  std::uniform_real_distribution<float> share(0.05f, 0.9f);
  for (int64_t i = 0; i < nodes; ++i) {
    const int32_t parent = int32_t(random() % uint64_t(tree.size()));
    tree.add(10 + i, parent, tree.proposed_probability[parent] * share(random));
  }
  return tree;
}

TEST(PassCost, RunsStraightBetweenMeasurementsAndBeyond) {
  CostModel model;
  EXPECT_EQ(model.passes().expected_seconds(3), 0);
  EXPECT_FALSE(model.passes().has_timings(4));
  model.passes().observe(4, 0, 0.010);
  EXPECT_DOUBLE_EQ(model.passes().expected_seconds(100), 0.010);  // one point tells no slope
  model.passes().observe(8, 0, 0.014);
  EXPECT_TRUE(model.passes().has_timings(4));
  EXPECT_FALSE(model.passes().has_timings(6));
  EXPECT_DOUBLE_EQ(model.passes().expected_seconds(1), 0.010);
  EXPECT_NEAR(model.passes().expected_seconds(6), 0.012, 1e-12);
  EXPECT_NEAR(model.passes().expected_seconds(18), 0.024, 1e-12);
  model.passes().observe(8, 0, 0);  // no clock ticks that fast
  model.passes().observe(0, 0, 1);
  EXPECT_DOUBLE_EQ(model.passes().expected_seconds(8), 0.014);
}

TEST(PassCost, NeverFallsWithRowsHoweverNoisyTheClock) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> noise(0.6, 1.8);
  CostModel model;
  for (int i = 0; i < 2000; ++i) {
    const int64_t rows = 1 + int64_t(random() % 100);
    model.passes().observe(rows, 0, (0.01 + 0.0002 * double(rows)) * noise(random));
    for (int64_t r = 1; i % 100 == 0 && r < 150; ++r)
      ASSERT_LE(model.passes().expected_seconds(r), model.passes().expected_seconds(r + 1) + 1e-15);
  }
  for (const int64_t rows : {1, 20, 50, 100})
    EXPECT_NEAR(model.passes().expected_seconds(rows) / (0.01 + 0.0002 * double(rows)), 1.2, 0.2) << rows;
}

TEST(PassCost, FollowsDriftAtRowCountsThatAreNoLongerVisited) {
  CostModel model = measured([](int64_t rows) { return 0.01 + 0.001 * double(rows); });
  for (int i = 0; i < 100; ++i) model.passes().observe(16, 0, 0.026);
  for (int i = 0; i < 400; ++i) model.passes().observe(16, 0, 0.026 * 1.5);  // contexts grew
  EXPECT_NEAR(model.passes().expected_seconds(16), 0.026 * 1.5, 1e-4);
  EXPECT_NEAR(model.passes().expected_seconds(32), 0.042 * 1.5, 0.042 * 0.2);
  for (int i = 0; i < 400; ++i) model.passes().observe(16, 0, 0.026);
  EXPECT_NEAR(model.passes().expected_seconds(16), 0.026, 1e-4);
}

TEST(PassCost, ForgetsAColdStartAndShrugsOffAHiccup) {
  CostModel model;
  model.passes().observe(1, 0, 3.0);  // the first pass touched every page of the weights
  model.passes().observe(1, 0, 0.010);
  EXPECT_DOUBLE_EQ(model.passes().expected_seconds(1), 0.010);
  for (int i = 0; i < 50; ++i) model.passes().observe(1, 0, 0.010);
  model.passes().observe(1, 0, 5.0);
  EXPECT_LT(model.passes().expected_seconds(1), 0.0115);
}

// The cheapest of many counts tried is else the one whose clock was fastest.
TEST(PassCost, BelievesNeighboursMoreThanOneTiming) {
  const auto seconds = [](int64_t rows) { return 0.01 + 0.0005 * double(rows); };
  CostModel model = measured(seconds);
  model.passes().observe(21, 0, 0.6 * seconds(21));
  EXPECT_NEAR(model.passes().expected_seconds(21) / seconds(21), 0.92, 1e-6);  // a fifth of the way
  for (int i = 0; i < 60; ++i) model.passes().observe(21, 0, 0.8 * seconds(32));
  EXPECT_NEAR(model.passes().expected_seconds(21) / seconds(32), 0.8, 0.03);  // but many it believes
}

TEST(PassCost, TellsAttentionFromRows) {
  const double row = 0.0005, attended_token = 2e-6;
  const auto seconds = [&](int64_t rows, int64_t attended_tokens) {
    return 0.01 + row * double(rows) + attended_token * double(attended_tokens);
  };
  PassCost cost;
  for (int64_t rows = 1; rows <= 64; rows *= 2) cost.observe(rows, 0, seconds(rows, 0));
  cost.observe_attention(4, 500, seconds(4, 0), seconds(4, 4 * 500));
  EXPECT_NEAR(cost.expected_seconds(8, 8 * 2000), seconds(8, 8 * 2000), 1e-9);
  // Found a quarter too low, it is mended by passes of different contexts.
  cost.observe_attention(4, 500, seconds(4, 0), seconds(4, 4 * 500) - 0.25 * attended_token * 4 * 500);
  std::mt19937_64 random(7);
  for (int i = 0; i < 3000; ++i) {
    const int64_t rows = 1 + int64_t(random() % 8), attended_tokens = rows * int64_t(random() % 2000);
    cost.observe(rows, attended_tokens, seconds(rows, attended_tokens));
  }
  EXPECT_NEAR(cost.expected_seconds(8, 8 * 2000) / seconds(8, 8 * 2000), 1.0, 0.03);
  EXPECT_NEAR(cost.expected_seconds(8, 0) / seconds(8, 0), 1.0, 0.05);
  cost.observe_attention(4, 500, 0.02, 0.01);  // a clock's hiccup: attention does not give time back
  EXPECT_GE(cost.expected_seconds(8, 8 * 2000), cost.expected_seconds(8, 0));
}

TEST(Calibration, TrustsTheDrafterUntilEventsContradictIt) {
  CostModel model;
  for (const float p : {0.0f, 0.01f, 0.3f, 0.77f, 1.0f}) {
    EXPECT_NEAR(model.calibrated_probability(p), p, 1e-6);
    EXPECT_LE(model.calibrated_probability(p, Proposer::suffix), p);
  }
  // Nodes called 0.6 come true in 3 of 10 cases, nodes called 0.1 in 2 of 10.
  std::mt19937_64 random(5);
  for (int i = 0; i < 4000; ++i) {
    CandidateTree tree = CandidateTree::of_root(0);
    tree.add(1, 0, 0.6f);
    tree.add(2, 0, 0.1f);
    const double drawn = double(random() % 1000) / 1000;
    std::vector<int32_t> accepted{0};
    if (drawn < 0.5) accepted.push_back(drawn < 0.3 ? 1 : 2);
    model.observe_tree(tree, accepted);
  }
  EXPECT_NEAR(model.calibrated_probability(0.6f), 0.3, 0.05);
  EXPECT_NEAR(model.calibrated_probability(0.1f), 0.2, 0.05);
  // Nothing was seen of these, but the drafter is known to exaggerate.
  EXPECT_LT(model.calibrated_probability(0.9f), 0.7);
  EXPECT_EQ(model.calibrated_probability(0.9f, Proposer::suffix),
            CostModel().calibrated_probability(0.9f, Proposer::suffix));
  EXPECT_LE(model.calibrated_probability(1.0f), 1.0);
}

// Best tokens a second over every way to keep prefix-closed parts, one tree.
double best_by_force(const CandidateTree& tree, const CostModel& model) {
  double best = 0;
  for (uint32_t mask = 0; mask < (1u << (tree.size() - 1)); ++mask) {
    double tokens = 1;
    int64_t rows = 1;
    bool closed = true;
    std::vector<double> value(tree.size(), 1.0);
    for (int32_t i = 1; i < tree.size(); ++i) {
      value[i] = std::min(value[tree.parent[i]], model.calibrated_probability(tree.proposed_probability[i]));
      if (!(mask >> (i - 1) & 1)) continue;
      closed &= tree.parent[i] == 0 || (mask >> (tree.parent[i] - 1) & 1);
      tokens += value[i];
      ++rows;
    }
    if (closed)
      best = std::max(best, tokens / (model.passes().expected_seconds(rows) + model.draft_seconds(1)));
  }
  return best;
}

TEST(Trim, FindsTheBestPrefixClosedPart) {
  std::mt19937_64 random(17);
  for (int round = 0; round < 60; ++round) {
    const double step = double(round % 4) * 0.002;
    CostModel model = measured([&](int64_t rows) { return 0.01 + step * double((rows + 3) / 4); });
    if (round % 2) model.observe_draft(1, 0.002);
    const CandidateTree whole = random_tree(random, 1 + round % 12);
    if (round % 3 == 0)
      for (int i = 0; i < 30; ++i) model.observe_tree(whole, std::vector<int32_t>{0, 1});
    std::vector<CandidateTree> trees{whole};
    model.trim(trees, contexts(std::ssize(trees)), std::ssize(trees));
    double tokens = 1;
    std::vector<double> value(trees[0].size(), 1.0);
    for (int32_t i = 1; i < trees[0].size(); ++i) {
      ASSERT_LT(trees[0].parent[i], i);
      ASSERT_EQ(trees[0].depth[i], trees[0].depth[trees[0].parent[i]] + 1);
      value[i] =
          std::min(value[trees[0].parent[i]], model.calibrated_probability(trees[0].proposed_probability[i]));
      tokens += value[i];
      // Ids of a random tree are unique: the node kept its own parent.
      const int64_t old = trees[0].ids[i] - 9, old_parent = trees[0].ids[trees[0].parent[i]];
      ASSERT_EQ(old_parent, whole.ids[whole.parent[old]]);
    }
    const double rate = tokens / (model.passes().expected_seconds(trees[0].size()) + model.draft_seconds(1));
    const double plain = 1 / (model.passes().expected_seconds(1) + model.draft_seconds(1));
    const double best = best_by_force(whole, model);
    EXPECT_NEAR(rate / (best > 1.04 * plain ? best : plain), 1.0, 1e-9);  // trifles are left alone
  }
}

TEST(Trim, KeepsAllWhereRowsAreFreeAndNothingWhereTheyCostAsMuchAsAPass) {
  std::mt19937_64 random(23);
  std::vector<CandidateTree> trees;
  for (int i = 0; i < 8; ++i) trees.push_back(random_tree(random, 6));
  std::vector<CandidateTree> cheap = trees, dear = trees;
  measured([](int64_t) { return 0.01; }).trim(cheap, contexts(std::ssize(cheap)), std::ssize(cheap));
  EXPECT_EQ(nodes_of(cheap), nodes_of(trees));
  measured([](int64_t rows) {
    return 0.01 * double(rows);
  }).trim(dear, contexts(std::ssize(dear)), std::ssize(dear));
  EXPECT_EQ(nodes_of(dear), 0);
  EXPECT_EQ(dear.size(), trees.size());
}

TEST(Trim, KeepsANodeWherePaysSaysSo) {
  std::mt19937_64 random(41);
  int paid = 0, tried = 0;
  for (const double row : {0.0, 0.0005, 0.002, 0.005, 0.02}) {
    for (int i = 0; i < 20; ++i, ++tried) {
      CostModel model = measured([row](int64_t rows) { return 0.01 + row * double(rows); });
      std::vector<CandidateTree> trees{random_tree(random, 6), random_tree(random, 3)};
      const bool pays = model.pays(trees, contexts(2));
      model.trim(trees, contexts(2), 0);
      EXPECT_EQ(pays, nodes_of(trees) > 0) << row;
      paid += pays;
    }
  }
  EXPECT_GT(paid, 0);
  EXPECT_LT(paid, tried);
}

TEST(Trim, SpendsRowsOnTheSurestTreesOfTheBatch) {
  CandidateTree sure = CandidateTree::of_root(0), doubtful = CandidateTree::of_root(0);
  for (int i = 0; i < 4; ++i) sure.add(i, int32_t(sure.size()) - 1, sure.proposed_probability.back() * 0.95f);
  for (int i = 0; i < 4; ++i) doubtful.add(i, 0, 0.2f);
  std::vector<CandidateTree> trees{doubtful, sure};
  measured([](int64_t rows) {
    return 0.01 + 0.003 * double(rows);
  }).trim(trees, contexts(std::ssize(trees)), std::ssize(trees));
  EXPECT_EQ(trees[0].size(), 1);
  EXPECT_EQ(trees[1].size(), 5);
}

TEST(Trim, WeighsWhatEachTreesRowsLookBackAt) {
  CandidateTree tree = CandidateTree::of_root(0);
  tree.add(1, 0, 0.5f);
  std::vector<CandidateTree> trees{tree, tree};
  CostModel model = measured([](int64_t rows) { return 0.01 + 0.0005 * double(rows); });
  model.passes().observe_attention(4, 1000, 0.012, 0.032);  // 5 microseconds an attended token
  model.trim(trees, std::vector<int64_t>{4000, 10}, 2);
  EXPECT_EQ(trees[0].size(), 1);
  EXPECT_EQ(trees[1].size(), 2);
}

TEST(Trim, KeepsFourNodesATreeWhileCostsAreUnknown) {
  std::mt19937_64 random(29);
  std::vector<CandidateTree> trees{random_tree(random, 20), random_tree(random, 3),
                                   CandidateTree::of_root(4)};
  CostModel model;
  model.trim(trees, contexts(std::ssize(trees)), std::ssize(trees));
  EXPECT_EQ(trees[0].size(), 5);
  EXPECT_EQ(trees[1].size(), 4);
  EXPECT_EQ(trees[2].size(), 1);
  std::vector<CandidateTree> none;
  model.trim(none, contexts(std::ssize(none)), std::ssize(none));
  EXPECT_TRUE(none.empty());
}

TEST(LeastWorth, NeverHidesANodeThatTrimWouldKeep) {
  std::mt19937_64 random(37);
  for (const double row : {0.0, 0.0001, 0.0005, 0.002, 0.01})
    for (const int64_t sequences : {1, 4, 16}) {
      CostModel model = measured([&](int64_t rows) { return 0.01 + row * double((rows + 7) / 8 * 8); });
      std::vector<CandidateTree> trees;
      for (int64_t i = 0; i < sequences; ++i) trees.push_back(random_tree(random, 30));
      model.trim(trees, contexts(std::ssize(trees)), std::ssize(trees));
      const double least = model.min_joint_probability(contexts(sequences));
      EXPECT_LE(least, 0.3);
      for (const CandidateTree& tree : trees)
        for (const float p : tree.proposed_probability) EXPECT_GE(p, least > 0.02 ? least : 0) << row;
      EXPECT_TRUE(row > 0 || least <= 0.02);
      EXPECT_TRUE(row < 0.01 || sequences < 16 || least > 0.1);  // fewer fit rows that cost nothing
    }
  EXPECT_LE(CostModel().min_joint_probability(contexts(3)), 0.02);
}

}  // namespace
}  // namespace clover::infer
