#include "kernels/trees/tree_growth.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/kernels/here.h"
#include "tests/kernels/trees/growing_trees.h"

namespace clover::kernels {
namespace {

using namespace growing;

struct Child {
  Node node;
  int64_t row;  // that guessed it
};

/// The contract's words as plain loops.
std::vector<Child> children_of(const Tree& tree, const Level& level) {
  std::vector<Child> children;
  for (int32_t i = 0; i < tree.live; ++i) {
    const int32_t node = tree.first_live + i;
    const int64_t row = tree.guess_row + (level.rule.one_row_per_tree ? 0 : i);
    double mass = 0;
    for (int64_t rank = 0; rank < level.rule.max_candidates; ++rank) {
      const double its = probability(level, row, rank), best = probability(level, row, 0);
      mass += its;
      if (rank > 0 &&
          (its <= 0 || its < level.rule.relative_cut * best - 1e-6 || mass > level.rule.top_p + 1e-5))
        break;
      const float log =
          std::min(level.logits[row][rank].item<float>() - level.log_sums[row].item<float>(), 0.0f);
      const float of_parent = tree.nodes[node].score;
      const float score =
          level.rule.by_log_probability ? of_parent + log : of_parent * static_cast<float>(its);
      if (score < tree.min_score) break;
      children.push_back({{level.ids[row][rank].item<int64_t>(), node, score}, row});
    }
  }
  // By log-probability the order of parents and ranks, in which they stand, breaks ties.
  std::stable_sort(children.begin(), children.end(), [&level](const Child& a, const Child& b) {
    if (a.node.score != b.node.score || level.rule.by_log_probability) return a.node.score > b.node.score;
    return a.node.id != b.node.id ? a.node.id < b.node.id : a.node.parent < b.node.parent;
  });
  const int64_t room = std::min(tree.most - std::ssize(tree.nodes), level.rule.max_nodes_per_level);
  if (std::ssize(children) > room) children.resize(room);
  if (!level.rule.best_so_far) return children;
  std::vector<float> scores;  // of all nodes but the root
  for (size_t i = 1; i < tree.nodes.size(); ++i) scores.push_back(tree.nodes[i].score);
  std::vector<Child> best;
  for (const Child& child : children) {
    const auto better = std::ranges::count_if(scores, [&](float other) { return other >= child.node.score; });
    if (better + 1 >= tree.max_kept) break;
    scores.push_back(child.node.score);
    best.push_back(child);
  }
  return best;
}

/// Grows the tree; returns the rows of the next level: (row continued, token).
std::vector<std::pair<int64_t, int64_t>> grow_by_hand(Tree& tree, const Level& level, int32_t row) {
  std::vector<std::pair<int64_t, int64_t>> rows;
  if (tree.live == 0) return rows;
  const std::vector<Child> children = children_of(tree, level);
  tree.first_live = static_cast<int32_t>(tree.nodes.size());
  for (const Child& child : children) tree.nodes.push_back(child.node);
  --tree.levels;
  tree.guess_row = row;
  tree.live = static_cast<int32_t>(std::min<int64_t>(level.max_live, std::ssize(children)));
  if (tree.levels == 0 || std::ssize(tree.nodes) == tree.most) tree.live = 0;
  for (int32_t i = 0; i < tree.live && (i == 0 || !level.rule.one_row_per_tree); ++i)
    rows.emplace_back(children[i].row, children[i].node.id);
  return rows;
}

void expect_same_tree(const Tree& tree, const GrowingTrees& found, int64_t i) {
  const TreeState& state = static_cast<const TreeState*>(found.state.const_data_ptr())[i];
  ASSERT_EQ(state.nodes, std::ssize(tree.nodes));
  ASSERT_EQ(state.live, tree.live);
  if (tree.live > 0) {
    ASSERT_EQ(state.first_live, tree.first_live);
    ASSERT_EQ(state.guess_row, tree.guess_row);
    ASSERT_EQ(state.levels, tree.levels);
  }
  for (int64_t node = 1; node < state.nodes; ++node) {
    ASSERT_EQ(found.ids[i][node].item<int64_t>(), tree.nodes[node].id) << node;
    ASSERT_EQ(found.parent[i][node].item<int32_t>(), tree.nodes[node].parent) << node;
    ASSERT_NEAR(found.score[i][node].item<float>(), tree.nodes[node].score, 1e-5) << node;
  }
}

TEST(GrowLevel, GrowsWhatPlainLoopsGrowLevelByLevel) {
  on_every_path([] {
    Growth growth(5);
    for (int round = 0; round < (here::emulated() ? 25 : 120); ++round) {
      SCOPED_TRACE(round);
      Level level;
      level.rule = {growth.one_of({1, 3, 16}), static_cast<float>(growth.draw(2, 10)) / 10,
                    static_cast<float>(growth.draw(0, 3)) / 8, growth.draw(0, 3) == 0};
      level.max_live = growth.one_of({1, 4, 64});
      level.rule.by_log_probability = growth.draw(0, 2) == 0;
      if (growth.draw(0, 1)) level.rule.max_nodes_per_level = growth.one_of({1, 5, 64});
      level.rule.best_so_far = level.rule.by_log_probability && growth.draw(0, 1);
      const int64_t nodes = growth.one_of({2, 9, 64, 200});
      std::vector<Tree> trees(growth.one_of({1, 3, 40}));
      for (int32_t i = 0; i < std::ssize(trees); ++i) {
        trees[i].guess_row = i;
        trees[i].most = static_cast<int32_t>(growth.draw(1, nodes));
        trees[i].levels = static_cast<int32_t>(growth.draw(1, 4));
        trees[i].live = trees[i].most > 1 && growth.draw(0, 5) > 0 ? 1 : 0;
        trees[i].min_score = growth.draw(0, 1) ? 0.03f : 0.0f;
        trees[i].max_kept = static_cast<int32_t>(growth.draw(1, 30));
        if (!level.rule.by_log_probability) continue;
        trees[i].nodes[0].score = 0;
        trees[i].min_score = std::log(trees[i].min_score);
      }
      GrowingTrees found = tensors_of(trees, nodes, std::ssize(trees) * level.max_live + growth.draw(0, 3));
      int64_t guessing = std::ssize(trees);
      for (int depth = 0; depth < 4 && guessing > 0; ++depth) {
        growth.guess(level, guessing, level.rule.max_candidates + growth.draw(0, 2));
        here::grow_level(level.logits, level.ids, level.log_sums, level.rule, level.max_live, found);
        std::vector<std::pair<int64_t, int64_t>> rows;
        for (Tree& tree : trees) {
          const auto more = grow_by_hand(tree, level, static_cast<int32_t>(rows.size()));
          rows.insert(rows.end(), more.begin(), more.end());
        }
        for (int64_t i = 0; i < std::ssize(trees); ++i)
          ASSERT_NO_FATAL_FAILURE(expect_same_tree(trees[i], found, i));
        ASSERT_NO_FATAL_FAILURE(expect_rows(rows, found));
        guessing = std::ssize(rows);
      }
    }
  });
}

// Two nodes of the same probability whose guesses are alike but for one id.
TEST(GrowLevel, BreaksTiesByTokenThenParent) {
  on_every_path([] {
    Level level{at::full({2, 3}, -1.5f),
                at::tensor({4, 6, 8, 3, 6, 9}, at::kLong).view({2, 3}),
                at::zeros({2}),
                {3, 1, 0},
                2};
    std::vector<Tree> trees(1);
    trees[0].nodes = {{0, -1, 1.0f}, {1, 0, 0.4f}, {2, 0, 0.4f}};
    trees[0].first_live = 1;
    trees[0].live = 2;
    trees[0].most = 20;
    trees[0].levels = 2;
    GrowingTrees found = tensors_of(trees, 20, 2);
    here::grow_level(level.logits, level.ids, level.log_sums, level.rule, level.max_live, found);
    EXPECT_TRUE(at::equal(found.ids[0].slice(0, 3, 9), at::tensor({3, 4, 6, 6, 8, 9}, at::kLong)))
        << found.ids;
    EXPECT_TRUE(at::equal(found.parent[0].slice(0, 3, 9), at::tensor({2, 1, 1, 2, 1, 2}, at::kInt)))
        << found.parent;
    EXPECT_TRUE(at::equal(found.rows, at::tensor({1, 0, 3, 4}, at::kLong).view({2, 2}))) << found.rows;
  });
}

// The same by log-probability: a beam's guesses come before those of the next beam.
TEST(GrowLevel, BreaksTiesByParentThenToken) {
  on_every_path([] {
    Level level{at::full({2, 3}, -1.5f),
                at::tensor({4, 6, 8, 3, 6, 9}, at::kLong).view({2, 3}),
                at::zeros({2}),
                {.max_candidates = 3, .by_log_probability = true, .max_nodes_per_level = 4},
                4};
    std::vector<Tree> trees(1);
    trees[0].nodes = {{0, -1, 0}, {1, 0, -0.5f}, {2, 0, -0.5f}};
    trees[0].first_live = 1;
    trees[0].live = 2;
    trees[0].most = 20;
    trees[0].levels = 2;
    trees[0].min_score = -std::numeric_limits<float>::infinity();
    GrowingTrees found = tensors_of(trees, 20, 4);
    here::grow_level(level.logits, level.ids, level.log_sums, level.rule, level.max_live, found);
    EXPECT_TRUE(at::equal(found.ids[0].slice(0, 3, 7), at::tensor({4, 6, 8, 3}, at::kLong))) << found.ids;
    EXPECT_TRUE(at::equal(found.parent[0].slice(0, 3, 7), at::tensor({1, 1, 1, 2}, at::kInt)));
    EXPECT_TRUE(at::equal(found.score[0].slice(0, 3, 7), at::full({4}, -2.0f))) << found.score;
    EXPECT_EQ(found.row_count.item<int32_t>(), 4);
  });
}

// A probability that no float holds has a logarithm, and so a beam.
TEST(GrowLevel, KeepsGuessesOfVanishingProbabilityByTheirLogarithm) {
  on_every_path([] {
    for (const bool by_log : {false, true}) {
      std::vector<Tree> trees(1);
      trees[0].most = 5;
      trees[0].levels = 2;
      trees[0].nodes[0].score = by_log ? 0 : 1;
      trees[0].min_score = by_log ? -std::numeric_limits<float>::infinity() : 0;
      GrowingTrees found = tensors_of(trees, 5, 4);
      here::grow_level(
          at::tensor({0.0f, -200.0f, -300.0f, -std::numeric_limits<float>::infinity()}).view({1, 4}),
          at::arange(4, at::kLong).view({1, 4}), at::zeros({1}),
          {.max_candidates = 4, .by_log_probability = by_log}, 4, found);
      EXPECT_EQ(static_cast<const TreeState*>(found.state.const_data_ptr())->nodes, by_log ? 4 : 2);
      EXPECT_EQ(found.score[0][1].item<float>(), by_log ? 0 : 1);
    }
  });
}

TEST(GrowLevel, TakesTheBestGuessEvenWhenItIsNotANumber) {
  on_every_path([] {
    Level level{at::full({1, 2}, std::nanf("")),
                at::tensor({7, 9}, at::kLong).view({1, 2}),
                at::zeros({1}),
                {2, 1, 0},
                4};
    std::vector<Tree> trees(1);
    trees[0].most = 5;
    trees[0].levels = 2;
    GrowingTrees found = tensors_of(trees, 5, 4);
    here::grow_level(level.logits, level.ids, level.log_sums, level.rule, level.max_live, found);
    EXPECT_EQ(found.ids[0][1].item<int64_t>(), 7);
    EXPECT_EQ(found.score[0][1].item<float>(), 0);
    EXPECT_EQ(found.row_count.item<int32_t>(), 1);
  });
}

TEST(GrowLevel, SaysWhatIsWrong) {
  GrowingTrees trees = tensors_of(std::vector<Tree>(2), 4, 7);
  const auto error = [&](const LevelRule& rule, int64_t max_live) {
    return error_of([&] {
      here::grow_level(at::zeros({2, 3}), at::zeros({2, 3}, at::kLong), at::zeros({2}), rule, max_live,
                       trees);
    });
  };
  EXPECT_NE(error({4}, 1).find("max_candidates is 4"), std::string::npos);
  EXPECT_NE(error({1}, 65).find("65 live nodes"), std::string::npos);
  EXPECT_NE(error({1}, 4).find("room for 7 rows, expected 8"), std::string::npos);
  EXPECT_EQ(error({1}, 3), "");
}

}  // namespace
}  // namespace clover::kernels
