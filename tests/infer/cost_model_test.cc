#include "infer/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace clover::infer {
namespace {

CandidateTree random_tree(std::mt19937_64& random, int64_t nodes) {
  CandidateTree tree = CandidateTree::of_root(1);
  std::uniform_real_distribution<float> share(0.05f, 0.9f);
  for (int64_t i = 0; i < nodes; ++i) {
    const int32_t parent = int32_t(random() % uint64_t(tree.size()));
    tree.add(10 + i, parent, tree.probability_by_drafter[parent] * share(random));
  }
  return tree;
}

int64_t nodes_of(const std::vector<CandidateTree>& trees) {
  int64_t nodes = 0;
  for (const CandidateTree& tree : trees) nodes += tree.size() - 1;
  return nodes;
}

// Of each sequence of a batch, all alike.
std::vector<int64_t> contexts(int64_t sequences, int64_t tokens = 0) {
  return std::vector<int64_t>(sequences, tokens);
}

// A model that measured `seconds(rows)` at the counts that an engine's calibration visits.
template <class Seconds>
CostModel measured(Seconds seconds) {
  CostModel model;
  for (int64_t rows = 1; rows <= 64; rows *= 2) model.passes().observe(rows, 0, seconds(rows));
  return model;
}

TEST(PassCost, RunsStraightBetweenMeasurementsAndBeyond) {
  CostModel model;
  EXPECT_EQ(model.passes().at(3), 0);
  EXPECT_FALSE(model.passes().knows(4));
  model.passes().observe(4, 0, 0.010);
  EXPECT_DOUBLE_EQ(model.passes().at(100), 0.010);  // one point tells no slope
  model.passes().observe(8, 0, 0.014);
  EXPECT_TRUE(model.passes().knows(4));
  EXPECT_FALSE(model.passes().knows(6));
  EXPECT_DOUBLE_EQ(model.passes().at(1), 0.010);
  EXPECT_NEAR(model.passes().at(6), 0.012, 1e-12);
  EXPECT_NEAR(model.passes().at(18), 0.024, 1e-12);
  model.passes().observe(8, 0, 0);  // no clock ticks that fast
  model.passes().observe(0, 0, 1);
  EXPECT_DOUBLE_EQ(model.passes().at(8), 0.014);
}

TEST(PassCost, NeverFallsWithRowsHoweverNoisyTheClock) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> noise(0.6, 1.8);
  CostModel model;
  for (int i = 0; i < 2000; ++i) {
    const int64_t rows = 1 + int64_t(random() % 100);
    model.passes().observe(rows, 0, (0.01 + 0.0002 * double(rows)) * noise(random));
    for (int64_t r = 1; i % 100 == 0 && r < 150; ++r)
      ASSERT_LE(model.passes().at(r), model.passes().at(r + 1) + 1e-15);
  }
  for (const int64_t rows : {1, 20, 50, 100})
    EXPECT_NEAR(model.passes().at(rows) / (0.01 + 0.0002 * double(rows)), 1.2, 0.2) << rows;
}

TEST(PassCost, FollowsDriftAtRowCountsThatAreNoLongerVisited) {
  CostModel model = measured([](int64_t rows) { return 0.01 + 0.001 * double(rows); });
  for (int i = 0; i < 100; ++i) model.passes().observe(16, 0, 0.026);
  for (int i = 0; i < 400; ++i) model.passes().observe(16, 0, 0.026 * 1.5);  // contexts grew
  EXPECT_NEAR(model.passes().at(16), 0.026 * 1.5, 1e-4);
  EXPECT_NEAR(model.passes().at(32), 0.042 * 1.5, 0.042 * 0.2);
  for (int i = 0; i < 400; ++i) model.passes().observe(16, 0, 0.026);
  EXPECT_NEAR(model.passes().at(16), 0.026, 1e-4);
}

TEST(PassCost, ForgetsAColdStartAndShrugsOffAHiccup) {
  CostModel model;
  model.passes().observe(1, 0, 3.0);  // the first pass touched every page of the weights
  model.passes().observe(1, 0, 0.010);
  EXPECT_DOUBLE_EQ(model.passes().at(1), 0.010);
  for (int i = 0; i < 50; ++i) model.passes().observe(1, 0, 0.010);
  model.passes().observe(1, 0, 5.0);
  EXPECT_LT(model.passes().at(1), 0.0115);
}

TEST(PassCost, TellsAttentionFromRows) {
  const double row = 0.0005, position = 2e-6;
  const auto seconds = [&](int64_t rows, int64_t positions) {
    return 0.01 + row * double(rows) + position * double(positions);
  };
  PassCost cost;
  for (int64_t rows = 1; rows <= 64; rows *= 2) cost.observe(rows, 0, seconds(rows, 0));
  cost.observe_attention(4 * 500, seconds(4, 0), seconds(4, 4 * 500));
  EXPECT_NEAR(cost.at(8, 8 * 2000), seconds(8, 8 * 2000), 1e-9);
  // Found a quarter too low, it is mended by passes of different contexts.
  cost.observe_attention(4 * 500, seconds(4, 0), seconds(4, 4 * 500) - 0.25 * position * 4 * 500);
  std::mt19937_64 random(7);
  for (int i = 0; i < 3000; ++i) {
    const int64_t rows = 1 + int64_t(random() % 8), positions = rows * int64_t(random() % 2000);
    cost.observe(rows, positions, seconds(rows, positions));
  }
  EXPECT_NEAR(cost.at(8, 8 * 2000) / seconds(8, 8 * 2000), 1.0, 0.03);
  EXPECT_NEAR(cost.at(8, 0) / seconds(8, 0), 1.0, 0.05);
  cost.observe_attention(2000, 0.02, 0.01);  // a clock's hiccup: attention does not give time back
  EXPECT_GE(cost.at(8, 8 * 2000), cost.at(8, 0));
}

TEST(Calibration, TrustsTheDrafterUntilEventsContradictIt) {
  CostModel model;
  for (const float p : {0.0f, 0.01f, 0.3f, 0.77f, 1.0f}) {
    EXPECT_NEAR(model.calibrated(p), p, 1e-6);
    EXPECT_LE(model.calibrated(p, Proposer::suffix), p);
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
  EXPECT_NEAR(model.calibrated(0.6f), 0.3, 0.05);
  EXPECT_NEAR(model.calibrated(0.1f), 0.2, 0.05);
  // Nothing was seen of these, but the drafter is known to exaggerate.
  EXPECT_LT(model.calibrated(0.9f), 0.7);
  EXPECT_EQ(model.calibrated(0.9f, Proposer::suffix), CostModel().calibrated(0.9f, Proposer::suffix));
  EXPECT_LE(model.calibrated(1.0f), 1.0);
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
      value[i] = std::min(value[tree.parent[i]], model.calibrated(tree.probability_by_drafter[i]));
      if (!(mask >> (i - 1) & 1)) continue;
      closed &= tree.parent[i] == 0 || (mask >> (tree.parent[i] - 1) & 1);
      tokens += value[i];
      ++rows;
    }
    if (closed) best = std::max(best, tokens / (model.passes().at(rows) + model.draft_seconds(1)));
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
      value[i] = std::min(value[trees[0].parent[i]], model.calibrated(trees[0].probability_by_drafter[i]));
      tokens += value[i];
      // Ids of a random tree are unique: the node kept its own parent.
      const int64_t old = trees[0].ids[i] - 9, old_parent = trees[0].ids[trees[0].parent[i]];
      ASSERT_EQ(old_parent, whole.ids[whole.parent[old]]);
    }
    const double rate = tokens / (model.passes().at(trees[0].size()) + model.draft_seconds(1));
    const double plain = 1 / (model.passes().at(1) + model.draft_seconds(1));
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

TEST(Trim, SpendsRowsOnTheSurestTreesOfTheBatch) {
  CandidateTree sure = CandidateTree::of_root(0), doubtful = CandidateTree::of_root(0);
  for (int i = 0; i < 4; ++i)
    sure.add(i, int32_t(sure.size()) - 1, sure.probability_by_drafter.back() * 0.95f);
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
  model.passes().observe_attention(4 * 1000, 0.012, 0.032);  // 5 microseconds a position
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
      const double least = model.least_worth(contexts(sequences));
      EXPECT_LE(least, 0.3);
      for (const CandidateTree& tree : trees)
        for (const float p : tree.probability_by_drafter) EXPECT_GE(p, least > 0.02 ? least : 0) << row;
      EXPECT_TRUE(row > 0 || least <= 0.02);
      EXPECT_TRUE(row < 0.01 || sequences < 16 || least > 0.1);  // fewer fit rows that cost nothing
    }
  EXPECT_LE(CostModel().least_worth(contexts(3)), 0.02);
}

// Steps of an engine with `auto`: what share drafted, against the given costs.
struct Steps {
  int drafted = 0, plain = 0;
  double seconds = 0, tokens = 0;
};
Steps run(CostModel& model, int steps, int64_t sequences, double draft, double row, double acceptance) {
  std::mt19937_64 random(31);
  Steps done;
  for (int step = 0; step < steps; ++step) {
    std::vector<CandidateTree> trees(sequences, CandidateTree::of_root(0));
    const bool drafts = model.worth_drafting(contexts(sequences));
    ++(drafts ? done.drafted : done.plain);
    if (drafts) {
      for (CandidateTree& tree : trees) {
        tree.add(1, 0, 0.6f);
        tree.add(2, 1, 0.36f);
      }
      model.trim(trees, contexts(std::ssize(trees)), std::ssize(trees));
      model.observe_draft(sequences, draft * double(sequences));
      done.seconds += draft * double(sequences);
    }
    const int64_t rows = sequences + nodes_of(trees);
    const double seconds = 0.01 + row * double(rows);
    model.observe_pass(rows, 0, seconds);
    done.seconds += seconds;
    for (const CandidateTree& tree : trees) {
      std::vector<int32_t> accepted{0};
      while (std::ssize(accepted) < tree.size() && double(random() % 1000) / 1000 < acceptance)
        accepted.push_back(int32_t(accepted.size()));
      model.observe_tree(tree, accepted);
      done.tokens += double(accepted.size());
    }
  }
  return done;
}

TEST(WorthDrafting, DraftsWhereItPays) {
  CostModel model = measured([](int64_t rows) { return 0.01 + 0.0001 * double(rows); });
  const Steps done = run(model, 500, 4, 0.0002, 0.0001, 0.6);
  EXPECT_EQ(done.plain, 0);
}

TEST(WorthDrafting, CostsUnderThreePercentWhereItDoesNotPay) {
  struct Case {
    int64_t sequences;
    double draft, row, acceptance;
  };
  for (const Case& bad :
       {Case{8, 0.0003, 0.01, 0.6}, Case{1, 0.004, 0.0001, 0.02}, Case{16, 0.0001, 0.005, 0.1}}) {
    CostModel model = measured([&](int64_t rows) { return 0.01 + bad.row * double(rows); });
    run(model, 200, bad.sequences, bad.draft, bad.row, bad.acceptance);  // learns
    const Steps done = run(model, 2000, bad.sequences, bad.draft, bad.row, bad.acceptance);
    EXPECT_GT(done.drafted, 0);
    EXPECT_LE(done.drafted, 2000 / 30);
    const double plain = 2000 * (0.01 + bad.row * double(bad.sequences)) / (2000 * double(bad.sequences));
    EXPECT_LT(done.seconds / done.tokens, 1.03 * plain);
  }
}

// A short job has no time to find out.
TEST(WorthDrafting, DoesNotEvenTryWhereRowsAreTooDearForAnyGuess) {
  CostModel dear = measured([](int64_t rows) { return 0.001 * double(rows); });
  for (int step = 0; step < 40; ++step) EXPECT_FALSE(dear.worth_drafting(contexts(16))) << step;
  CostModel cheap = measured([](int64_t rows) { return 0.02 + 0.0005 * double(rows); });
  EXPECT_TRUE(cheap.worth_drafting(contexts(16)));
  EXPECT_TRUE(CostModel().worth_drafting(contexts(16)));  // nothing is known yet
}

TEST(WorthDrafting, DoesNotEvenTryBehindContextsThatMakeEveryRowDear) {
  CostModel model = measured([](int64_t rows) { return 0.01 + 0.0005 * double(rows); });
  model.passes().observe_attention(1000, 0.010, 0.020);
  EXPECT_FALSE(model.worth_drafting(contexts(4, 8000)));
  EXPECT_TRUE(model.worth_drafting(contexts(4, 10)));
}

// Heads that say 0.6 and 0.36 where 0.15 and 0.02 come true, and rows a tenth of a pass each.
TEST(WorthDrafting, FindsOutInAFewStepsThatHeadsExaggerate) {
  CostModel model = measured([](int64_t rows) { return 0.01 + 0.001 * double(rows); });
  const Steps done = run(model, 500, 1, 0.0005, 0.001, 0.15);
  EXPECT_LT(done.seconds / done.tokens, 1.02 * 0.011);
}

// As on a GPU, where drafts begin behind a pass that is under way, and where a pass is not timed while the
// GPU runs something for the first time.
TEST(WorthDrafting, FindsOutThatDraftingDoesNotPayThoughSomePassesAreNotTimed) {
  for (const double draft : {0.0025, 0.004}) {
    for (const int untimed : {0, 20, 60}) {
      CostModel model = measured([](int64_t rows) { return 0.01 + 0.0005 * double(rows); });
      std::mt19937_64 random(31);
      bool begun = true;
      int drafted = 0;
      for (int step = 0; step < 600; ++step) {
        model.settle_promise();
        std::vector<CandidateTree> trees{CandidateTree::of_root(0)};
        drafted += begun;
        if (begun) {
          trees[0].add(1, 0, 0.6f);
          trees[0].add(2, 1, 0.36f);
          model.observe_draft(1, draft);
          model.trim(trees, contexts(1), 1);
        }
        begun = model.worth_drafting(contexts(1));
        const int64_t rows = trees[0].size();
        if (step >= untimed) model.observe_pass(rows, 0, 0.01 + 0.0005 * double(rows));
        std::vector<int32_t> accepted{0};
        while (std::ssize(accepted) < rows && random() % 5 == 0) accepted.push_back(int32_t(accepted.size()));
        model.observe_tree(trees[0], accepted);
      }
      EXPECT_LT(drafted, untimed + 60) << draft << " " << untimed;
      EXPECT_GT(drafted, 0);
    }
  }
}

// Rows beyond 16 cost more than the curve through calibration's points says.
TEST(WorthDrafting, FindsOutThatPromisesAreNotKept) {
  const auto seconds = [](int64_t rows) { return rows <= 16 ? 0.010 : 0.010 + 0.0008 * double(rows - 16); };
  CostModel model;
  for (const int64_t rows : {1, 8, 16}) model.passes().observe(rows, 0, seconds(rows));
  double spent = 0, tokens = 0;
  std::mt19937_64 random(41);
  for (int step = 0; step < 600; ++step) {
    std::vector<CandidateTree> trees(16, CandidateTree::of_root(0));
    if (model.worth_drafting(contexts(16))) {
      for (CandidateTree& tree : trees) tree.add(1, 0, 0.2f + 0.5f * float(random() % 100) / 100);
      model.trim(trees, contexts(16), 16);
      model.observe_draft(16, 0.0002);
      spent += 0.0002;
    }
    const int64_t rows = 16 + nodes_of(trees);
    model.observe_pass(rows, 0, seconds(rows));
    spent += seconds(rows);
    for (const CandidateTree& tree : trees) {
      std::vector<int32_t> accepted{0};
      if (tree.size() > 1 && double(random() % 1000) / 1000 < tree.probability_by_drafter[1])
        accepted.push_back(1);
      model.observe_tree(tree, accepted);
      tokens += double(accepted.size());
    }
  }
  EXPECT_GT(tokens / spent, 0.98 * 16 / 0.010);
}

TEST(WorthDrafting, ComesBackWhenDraftingPaysAgain) {
  CostModel model = measured([](int64_t rows) { return 0.01 + 0.0001 * double(rows); });
  run(model, 400, 2, 0.02, 0.0001, 0.6);
  EXPECT_LT(run(model, 128, 2, 0.02, 0.0001, 0.6).drafted, 10);  // far too slow a drafter
  run(model, 3000, 2, 0.0001, 0.0001, 0.6);                      // a fast one
  EXPECT_EQ(run(model, 200, 2, 0.0001, 0.0001, 0.6).plain, 0);
}

TEST(WorthDrafting, JudgesEveryBatchSizeByItsOwnKind) {
  CostModel model = measured([](int64_t rows) { return rows <= 8 ? 0.01 : 0.01 * double(rows) / 8; });
  const auto step = [&](int64_t sequences) {
    const bool drafts = model.worth_drafting(contexts(sequences));
    std::vector<CandidateTree> trees(sequences, CandidateTree::of_root(0));
    for (CandidateTree& tree : trees) tree.add(1, 0, 0.6f);
    if (drafts) {
      model.trim(trees, contexts(std::ssize(trees)), std::ssize(trees));
      model.observe_draft(sequences, 0.0005);
    }
    return drafts;
  };
  for (int i = 0; i < 100; ++i) step(16);
  int at_sixteen = 0, at_two = 0;
  for (int i = 0; i < 60; ++i) at_sixteen += step(16);
  for (int i = 0; i < 60; ++i) at_two += step(2);
  EXPECT_LE(at_sixteen, 4);
  EXPECT_EQ(at_two, 60);
}

}  // namespace
}  // namespace clover::infer
