#include "infer/tree/grow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "infer/tree/static_tree.h"
#include "model/cache/kv_cache.h"
#include "model/graphs/draft_runner.h"
#include "model/graphs/graph_runner.h"
#include "tests/infer/tree/scripted_growth.h"

namespace clover::infer {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using namespace scripted;

constexpr GrowthRule paper{Policy::clover, 0.8, 0.25};

TEST(GrowClover, GrowsTheTreeOfThePapersFigure) {
  ScriptedDrafter drafter(5, 3,
                          from_table(5, {{{0}, {.5, .3, .1, .05, .05}},
                                         {{0, 0}, {.05, .8, .1, .025, .025}},
                                         {{0, 1}, {.1, .3, .2, .2, .2}}}));
  const int64_t root = 4;
  const GrowthLimit limit{4, 3};
  const auto trees = grown(drafter, {0}, {&root, 1}, paper, {&limit, 1});
  ASSERT_EQ(trees.size(), 1);
  EXPECT_THAT(trees[0].ids, ElementsAre(4, 0, 1, 1, 1));
  EXPECT_THAT(trees[0].parent, ElementsAre(-1, 0, 0, 1, 2));
  EXPECT_THAT(trees[0].depth, ElementsAre(0, 1, 1, 2, 2));
  const std::vector<float> joint{1, .5, .3, .4, .09};
  for (size_t i = 0; i < joint.size(); ++i)
    EXPECT_NEAR(trees[0].proposed_probability[i], joint[i], 1e-5) << i;
  EXPECT_THAT(drafter.rows_evaluated, ElementsAre(1, 2));
}

TEST(GrowClover, DropsALongTailAndKeepsTheBestEvenWhenItCrosses) {
  ScriptedDrafter drafter(
      5, 1, from_table(5, {{{0}, {.1, .6, .1, .1, .1}}, {{1}, {.05, .0, .9, .05, .0}}, {{2}, {.4, .4, .2}}}));
  const std::vector<int64_t> roots{0, 0, 0};
  const std::vector<GrowthLimit> limits(3, {4, 1});
  const auto trees = grown(drafter, {0, 1, 2}, roots, paper, limits);
  EXPECT_THAT(trees[0].ids, ElementsAre(0, 1));     // .1 is below a quarter of .6
  EXPECT_THAT(trees[1].ids, ElementsAre(0, 2));     // .9 alone exceeds top-p
  EXPECT_THAT(trees[2].ids, ElementsAre(0, 0, 1));  // .4 + .4 reach .8 and do not cross it
}

TEST(GrowClover, BreaksTiesByTokenThenParent) {
  ScriptedDrafter drafter(
      4, 2, from_table(4, {{{0}, {.25, .25, .25, .25}}, {{0, 0}, {0, .5, .5, 0}}, {{0, 1}, {.5, .5, 0, 0}}}));
  const int64_t root = 0;
  const GrowthLimit limit{7, 2};
  const auto trees = grown(drafter, {0}, {&root, 1}, {Policy::clover, 1, 0}, {&limit, 1});
  EXPECT_THAT(trees[0].ids, ElementsAre(0, 0, 1, 2, 3, 0, 1, 1));
  EXPECT_THAT(trees[0].parent, ElementsAre(-1, 0, 0, 0, 0, 2, 1, 2));
}

TEST(GrowClover, SpeaksTheTargetsTokensWhenTheVocabularyIsTrimmed) {
  ScriptedDrafter drafter(8, 2,
                          from_table(8, {{{0}, {.9, 0.01, .02, .03, .01, .01, .01, .01}},
                                         {{0, 3}, {.9, 0.01, .01, .01, .01, .04, .01, .01}}}),
                          at::tensor({2, 3, 5}, at::kLong));
  const int64_t root = 0;
  const GrowthLimit limit{2, 2};
  const auto trees = grown(drafter, {0}, {&root, 1}, {Policy::chain}, {&limit, 1});
  EXPECT_THAT(trees[0].ids, ElementsAre(0, 3, 5));
  EXPECT_NEAR(trees[0].proposed_probability[1], .03 / .06, 1e-5);  // softmax over what is left
}

TEST(GrowAutomatic, LeavesOutWhatIsHopeless) {
  ScriptedDrafter drafter(
      4, 3, from_table(4, {{{0}, {.5, .3, .15, .05}}, {{0, 0}, {.9, .1, 0, 0}}, {{0, 1}, {.3, .3, .3, .1}}}));
  const int64_t root = 0;
  const GrowthLimit limit{1000, 2};
  const GrowthRule rule{Policy::automatic, 1, 0, 0.12};
  const auto trees = grown(drafter, {0}, {&root, 1}, rule, {&limit, 1});
  EXPECT_THAT(trees[0].ids, ElementsAre(0, 0, 1, 2, 0));
  EXPECT_THAT(trees[0].parent, ElementsAre(-1, 0, 0, 0, 1));
}

TEST(Grow, ComputesNoRowsForSequencesWithoutBudgetOrDepth) {
  ScriptedDrafter drafter(16, 4, random_script(16, 1));
  const std::vector<int64_t> roots{1, 2, 3, 4};
  const std::vector<GrowthLimit> limits{{0, 9}, {3, 9}, {9, 0}, {9, 2}};
  const auto trees = grown(drafter, {0, 1, 2, 3}, roots, {Policy::chain}, limits);
  EXPECT_EQ(trees[0].size(), 1);
  EXPECT_EQ(trees[1].size(), 4);
  EXPECT_EQ(trees[2].size(), 1);
  EXPECT_EQ(trees[3].size(), 3);
  EXPECT_THAT(drafter.rows_evaluated, ElementsAre(2, 2, 1));

  drafter.rows_evaluated.clear();
  const auto bare = grown(drafter, {0, 1, 2, 3}, roots, {Policy::off}, limits);
  for (size_t i = 0; i < roots.size(); ++i) EXPECT_THAT(bare[i].ids, ElementsAre(roots[i]));
  EXPECT_TRUE(drafter.rows_evaluated.empty());
  EXPECT_TRUE(grown(drafter, {}, {}, paper, {}).empty());
}

TEST(GrowStatic, FollowsMedusasTableAndAsksEachHeadOnceASequence) {
  ScriptedDrafter drafter(32, 5, random_script(32, 2), {}, /*autoregressive=*/false);
  const std::vector<int64_t> roots{1, 2};
  const std::vector<GrowthLimit> limits{{1000, 9}, {20, 9}};
  const auto trees = grown(drafter, {0, 1}, roots, {Policy::fixed_tree}, limits);
  EXPECT_EQ(drafter.rows_evaluated.front(), 2);
  EXPECT_THAT(drafter.rows_evaluated, Each(::testing::Le(2)));
  ASSERT_EQ(trees[0].size(), 64);
  ASSERT_EQ(trees[1].size(), 21);
  for (int64_t s = 0; s < 2; ++s) {
    const StaticTree table = medusa_tree().cut(limits[s].budget, 9, 32);
    EXPECT_EQ(trees[s].parent, table.parent);
    EXPECT_EQ(trees[s].depth, table.depth);
    for (int64_t i = 1; i < trees[s].size(); ++i) {
      Path heard(trees[s].depth[i], -1);  // the heads hear nothing of the path
      heard[0] = s;
      const Row row = softmax_of(random_script(32, 2)(heard), every_id(32));
      EXPECT_EQ(trees[s].ids[i], row.order[table.rank[i]]) << i;
    }
  }
}

TEST(GrowStatic, ExpandsOnlyNodesThatHaveChildrenInTheTable) {
  ScriptedDrafter drafter(32, 9, random_script(32, 3));
  const int64_t root = 1;
  const GrowthLimit limit{63, 9};
  const auto trees = grown(drafter, {0}, {&root, 1}, {Policy::fixed_tree}, {&limit, 1});
  EXPECT_EQ(trees[0].size(), 64);
  // Root; 0..9; 00..07, 10, 20; 000.
  EXPECT_THAT(drafter.rows_evaluated, ElementsAre(1, 10, 10, 1));
}

TEST(GrowStatic, FitsAVocabularySmallerThanTheTable) {
  ScriptedDrafter drafter(3, 4, random_script(3, 3));
  const int64_t root = 1;
  const GrowthLimit limit{63, 4};
  const auto trees = grown(drafter, {0}, {&root, 1}, {Policy::fixed_tree}, {&limit, 1});
  EXPECT_EQ(trees[0].parent, medusa_tree().cut(63, 4, 3).parent);
}

// Every promise of a tree, by plain loops over the script.
void expect_lawful(const CandidateTree& tree, const ScriptedDrafter::Script& script, int64_t sequence,
                   const std::vector<int64_t>& allowed, const GrowthRule& rule, const GrowthLimit& limit,
                   int64_t drafter_depth) {
  ASSERT_LE(tree.size() - 1, std::max<int64_t>(limit.budget, 0));
  ASSERT_EQ(tree.parent[0], -1);
  std::vector<std::vector<int32_t>> children(tree.size());
  for (int32_t i = 1; i < tree.size(); ++i) {
    ASSERT_GE(tree.parent[i], 0);
    ASSERT_LT(tree.parent[i], i);
    ASSERT_EQ(tree.depth[i], tree.depth[tree.parent[i]] + 1);
    ASSERT_LE(tree.depth[i], std::min(limit.max_depth, drafter_depth));
    ASSERT_LE(tree.proposed_probability[i], tree.proposed_probability[tree.parent[i]] * (1 + 1e-6f));
    children[tree.parent[i]].push_back(i);
  }
  for (int32_t node = 0; node < tree.size(); ++node) {
    if (children[node].empty()) continue;
    const Row row = softmax_of(script(path_to(tree, node, sequence)), allowed);
    std::set<int64_t> ids;
    double mass = 0, all = 0;  // of the guesses that probabilities are among
    const int64_t among = growth_policy(rule.policy).softmax_over;
    for (int64_t rank = 0; rank < std::ssize(row.order) && (among == 0 || rank < among); ++rank)
      all += row.probability[row.order[rank]];
    for (const int32_t child : children[node]) {
      ids.insert(tree.ids[child]);
      const double probability = row.probability[tree.ids[child]] / all;
      mass += probability;
      ASSERT_NEAR(tree.proposed_probability[child], tree.proposed_probability[node] * probability, 1e-4);
      if (growth_policy(rule.policy).admit != GrowthPolicy::Admit::planned) {
        ASSERT_GE(probability, cuts_of(rule).relative_cut * row.probability[row.order[0]] - 1e-5);
      }
    }
    ASSERT_EQ(ids.size(), children[node].size()) << "siblings repeat a token";
    // Siblings are the best of their row, ties to the lowest ids; of beams those that live.
    if (growth_policy(rule.policy).remain == GrowthPolicy::Remain::paths_to_last_level) continue;
    ASSERT_EQ(ids, std::set<int64_t>(row.order.begin(), row.order.begin() + std::ssize(ids)));
    if (ids.size() > 1 && rule.policy != Policy::fixed_tree) {
      ASSERT_LE(mass, cuts_of(rule).top_p + 1e-4);
    }
    if (rule.policy == Policy::chain) {
      ASSERT_EQ(ids.size(), 1);
    }
  }
}

bool same(const CandidateTree& a, const CandidateTree& b) {
  return a.ids == b.ids && a.parent == b.parent && a.depth == b.depth &&
         a.proposed_probability == b.proposed_probability;
}

TEST(GrowRandomised, KeepsEveryPromiseAndEverySequenceToItself) {
  std::mt19937_64 random(20240501);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const std::vector<Policy> policies{Policy::automatic, Policy::chain, Policy::fixed_tree,
                                     Policy::clover,    Policy::beam,  Policy::best_first};
  for (int round = 0; round < 300; ++round) {
    const int64_t vocab = draw(2, 60), depth = draw(1, 5), batch = draw(1, 6);
    const bool autoregressive = draw(0, 2) > 0, trimmed = draw(0, 2) == 0;
    std::vector<int64_t> allowed = every_id(vocab);
    if (trimmed) std::erase_if(allowed, [&](int64_t id) { return id > 0 && draw(0, 1); });
    ScriptedDrafter drafter(vocab, depth, random_script(vocab, round),
                            trimmed ? at::tensor(allowed, at::kLong) : at::Tensor(), autoregressive);
    const auto script = [&](const Path& path) {
      Path heard = path;
      if (!autoregressive) std::fill(heard.begin() + 1, heard.end(), -1);
      return random_script(vocab, round)(heard);
    };
    const GrowthRule rule{policies[draw(0, 5)], double(draw(1, 10)) / 10, double(draw(0, 4)) / 8};
    std::vector<int64_t> roots, names;
    std::vector<GrowthLimit> limits;
    for (int64_t i = 0; i < batch; ++i) {
      roots.push_back(draw(0, vocab - 1));
      names.push_back(100 + i);
      limits.push_back({draw(-1, 24), draw(0, 6)});
    }
    const auto trees = grown(drafter, names, roots, rule, limits);
    ASSERT_EQ(trees.size(), roots.size());
    for (int64_t i = 0; i < batch; ++i) {
      ASSERT_EQ(trees[i].ids[0], roots[i]);
      ASSERT_NO_FATAL_FAILURE(expect_lawful(trees[i], script, names[i], allowed, rule, limits[i], depth))
          << "round " << round;
      const auto alone = grown(drafter, {names[i]}, {&roots[i], 1}, rule, {&limits[i], 1});
      ASSERT_TRUE(same(alone[0], trees[i])) << "round " << round << ", sequence " << i;
    }
  }
}

TEST(GrowRandomised, SpendsTheWholeBudgetWhenNothingForbidsIt) {
  ScriptedDrafter drafter(64, 6, random_script(64, 9));
  for (const int64_t budget : {1, 2, 3, 7, 16, 40}) {
    const int64_t root = 0;
    const GrowthLimit limit{budget, 6};
    const GrowthRule open{Policy::clover, 1.0, 0.0};
    EXPECT_EQ(grown(drafter, {5}, {&root, 1}, open, {&limit, 1})[0].size(), budget + 1);
  }
}

}  // namespace
}  // namespace clover::infer
