#include "infer/tree/static_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/input_error.h"

namespace clover::infer {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// EAGLE-1's default tree of 25 nodes in the expected order, derived independently of this project.  A digit
// is the rank of a guess among its siblings.
constexpr std::string_view eagle_paths[] = {
    "00000", "0",   "1",   "2",   "3",   "00",  "01",  "02",  "10",   "11",   "20",   "21",   "30",
    "000",   "001", "002", "010", "011", "020", "021", "100", "0000", "0001", "0002", "00001"};

TEST(StaticTreePaths, StandInCanonicalOrder) {
  const StaticTree tree = StaticTree::of_paths(eagle_paths);
  EXPECT_THAT(tree.parent, ElementsAre(-1, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 5, 5, 6, 6, 7, 7, 8, 13, 13,
                                       13, 21, 21));
  EXPECT_THAT(tree.depth,
              ElementsAre(0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4, 5, 5));
  EXPECT_THAT(tree.rank,
              ElementsAre(0, 0, 1, 2, 3, 0, 1, 2, 0, 1, 0, 1, 0, 0, 1, 2, 0, 1, 0, 1, 0, 0, 1, 2, 0, 1));
}

TEST(StaticTreePaths, RefuseWhatIsNoTree) {
  const auto message = [](std::vector<std::string_view> paths) {
    return test::input_error([&] { StaticTree::of_paths(paths); });
  };
  EXPECT_THAT(message({"0", "10"}), HasSubstr("without \"1\""));
  EXPECT_THAT(message({"0", "1", "0"}), HasSubstr("twice"));
  EXPECT_THAT(message({"0", "0a"}), HasSubstr("digits"));
  EXPECT_THAT(message({""}), HasSubstr("digits"));
  EXPECT_EQ(StaticTree::of_paths({}).size(), 1);
}

TEST(MedusaTree, IsTheShippedOne) {
  const StaticTree& tree = medusa_tree();
  const std::vector<int32_t> parents{-1, 0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  1,  1,  1,  1,  1,
                                     1,  1,  1,  1,  1,  2,  2,  2,  2,  2,  2,  2,  3,  3,  3,  4,
                                     4,  5,  6,  7,  8,  9,  10, 11, 11, 11, 11, 11, 11, 11, 11, 11,
                                     11, 12, 12, 12, 13, 13, 14, 15, 16, 17, 18, 21, 21, 28, 39, 39};
  EXPECT_THAT(tree.parent, ElementsAreArray(parents));
  for (const auto& [depth, nodes] : {std::pair{1, 10}, {2, 28}, {3, 23}, {4, 2}})
    EXPECT_EQ(std::count(tree.depth.begin(), tree.depth.end(), depth), nodes);
}

TEST(MedusaAccuracy, MeetsThePublishedFigures) {
  const double published[][2] = {{.560, .780}, {.316, .563}, {.201, .417}, {.147, .340}, {.118, .300}};
  for (int head = 0; head < 5; ++head) {
    double best_five = 0;
    for (int rank = 0; rank < 5; ++rank) best_five += medusa_accuracy(head, rank);
    EXPECT_DOUBLE_EQ(medusa_accuracy(head, 0), published[head][0]);
    EXPECT_NEAR(best_five, published[head][1], 1e-3);
    for (int rank = 1; rank < 10; ++rank)
      EXPECT_LT(medusa_accuracy(head, rank), medusa_accuracy(head, rank - 1));
  }
  EXPECT_DOUBLE_EQ(medusa_accuracy(9, 3), medusa_accuracy(4, 3));
}

// Medusa's own search, confined to the table: from the root, always add the neighbour of largest product.
std::set<int32_t> searched(const StaticTree& tree, int64_t budget, int64_t max_depth, int64_t width) {
  std::set<int32_t> taken{0};
  std::vector<double> gain(tree.size(), 1.0);
  for (int32_t i = 1; i < tree.size(); ++i)
    gain[i] = gain[tree.parent[i]] * medusa_accuracy(tree.depth[i] - 1, tree.rank[i]);
  while (std::ssize(taken) <= budget) {
    int32_t best = -1;
    for (int32_t i = 1; i < tree.size(); ++i) {
      if (taken.contains(i) || !taken.contains(tree.parent[i])) continue;
      if (tree.depth[i] > max_depth || tree.rank[i] >= width) continue;
      if (best < 0 || gain[i] > gain[best]) best = i;
    }
    if (best < 0) break;
    taken.insert(best);
  }
  return taken;
}

TEST(StaticTreeCut, TakesWhatPromisesMostAtEveryBudgetDepthAndWidth) {
  const StaticTree& whole = medusa_tree();
  for (const int64_t max_depth : {0, 1, 2, 3, 4, 9})
    for (const int64_t width : {1, 2, 5, 1000})
      for (int64_t budget = 0; budget <= 70; ++budget) {
        const std::set<int32_t> expected = searched(whole, budget, max_depth, width);
        const StaticTree cut = whole.cut(budget, max_depth, width);
        ASSERT_EQ(cut.size(), std::ssize(expected));
        const std::vector<int32_t> nodes(expected.begin(), expected.end());
        for (size_t i = 1; i < nodes.size(); ++i) {
          ASSERT_EQ(cut.rank[i], whole.rank[nodes[i]]);
          ASSERT_EQ(cut.depth[i], whole.depth[nodes[i]]);
          ASSERT_EQ(nodes[cut.parent[i]], whole.parent[nodes[i]]);
        }
      }
  EXPECT_EQ(whole.cut(-1, 4, 10).size(), 1);
}

TEST(StaticTreeCut, PrefersDepthToTailWhereHeadsAreGood) {
  const StaticTree cut = medusa_tree().cut(4, 4, 1000);
  // 0 (.560), 00 (.177), 1 (.124), 01 (.064)
  EXPECT_THAT(cut.parent, ElementsAre(-1, 0, 0, 1, 1));
  EXPECT_THAT(cut.rank, ElementsAre(0, 0, 1, 0, 1));
}

}  // namespace
}  // namespace clover::infer
