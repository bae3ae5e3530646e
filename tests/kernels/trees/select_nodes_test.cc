#include "kernels/trees/select_nodes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "tests/kernels/here.h"

namespace clover::kernels {
namespace {

struct SelectedTree {
  std::vector<int64_t> ids{0};
  std::vector<int32_t> parent{-1}, depth{0};
  std::vector<float> score;
  int32_t first_of_last_level = 0;
  int32_t max_kept = 1;
};

GrowingTrees selection_tensors(const std::vector<SelectedTree>& trees, int64_t room) {
  const int64_t count = std::ssize(trees);
  GrowingTrees all;
  all.ids = at::full({count, room}, -7, at::kLong);
  all.parent = at::full({count, room}, -7, at::kInt);
  all.score = at::full({count, room}, -7.0f);
  all.state = at::zeros({count, tree_state_size}, at::kInt);
  for (int64_t i = 0; i < count; ++i) {
    const SelectedTree& tree = trees[i];
    for (int64_t node = 1; node < std::ssize(tree.ids); ++node) {
      all.ids[i][node] = tree.ids[node];
      all.parent[i][node] = tree.parent[node];
      all.score[i][node] = tree.score[node];
    }
    static_cast<TreeState*>(all.state.mutable_data_ptr())[i] = {
        .nodes = static_cast<int32_t>(tree.ids.size()),
        .first_live = tree.first_of_last_level,
        .live = 0,
        .max_kept = tree.max_kept};
  }
  return all;
}

/// The numbers of the nodes that remain, by the words of the contract.
std::vector<int32_t> remaining(const SelectedTree& tree, const SelectRule& rule) {
  const int32_t nodes = static_cast<int32_t>(tree.ids.size());
  std::set<int32_t> left;
  for (int32_t node = 1; node < nodes; ++node)
    if (!rule.paths_to_last_level || node >= tree.first_of_last_level)
      for (int32_t at = node; at > 0; at = tree.parent[at]) left.insert(at);
  std::vector<int32_t> order(left.begin(), left.end());
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return tree.score[a] > tree.score[b]; });
  if (std::ssize(order) > tree.max_kept - 1) order.resize(tree.max_kept - 1);
  order.push_back(0);
  std::ranges::sort(order);
  return order;
}

/// Grown level by level, with ties between scores and children as probable as their parents.
SelectedTree random_tree(std::mt19937_64& random, bool by_log) {
  const auto draw = [&](int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random);
  };
  SelectedTree tree;
  tree.score = {by_log ? 0.0f : 1.0f};
  for (int32_t level = draw(0, 5), begin = 0, end = 1; level > 0; --level) {
    for (int32_t added = draw(1, 60); added > 0; --added) {
      const int32_t parent = draw(begin, end - 1);
      const float share = static_cast<float>(draw(1, 4)) / 4;
      tree.ids.push_back(draw(0, 1000));
      tree.parent.push_back(parent);
      tree.score.push_back(by_log ? tree.score[parent] + std::log(share) : tree.score[parent] * share);
    }
    tree.first_of_last_level = begin = end;
    end = static_cast<int32_t>(tree.ids.size());
  }
  return tree;
}

TEST(SelectNodes, LeavesWhatPlainLoopsLeave) {
  on_every_path([] {
    std::mt19937_64 random(3);
    for (int round = 0; round < (here::emulated() ? 9 : 100); ++round) {
      SCOPED_TRACE(round);
      const SelectRule rule{round % 2 == 0, round % 3 == 0};
      std::vector<SelectedTree> trees;
      for (int i = 0; i < 1 + round % 3; ++i) {
        trees.push_back(random_tree(random, rule.by_log_probability));
        trees.back().max_kept = std::uniform_int_distribution<int32_t>(1, 150)(random);
      }
      const GrowingTrees kept = here::select_nodes(selection_tensors(trees, 301), rule, 150);
      for (int64_t i = 0; i < std::ssize(trees); ++i) {
        const std::vector<int32_t> expected = remaining(trees[i], rule);
        ASSERT_EQ(static_cast<const TreeState*>(kept.state.const_data_ptr())[i].nodes, std::ssize(expected));
        for (int64_t at = 1; at < std::ssize(expected); ++at) {
          const int32_t node = expected[at], parent = kept.parent[i][at].item<int32_t>();
          ASSERT_EQ(kept.ids[i][at].item<int64_t>(), trees[i].ids[node]);
          ASSERT_EQ(expected.at(parent), trees[i].parent[node]) << "a parent remains where its child does";
          const float score = trees[i].score[node];
          ASSERT_NEAR(kept.score[i][at].item<float>(), rule.by_log_probability ? std::exp(score) : score,
                      1e-6);
        }
      }
    }
  });
}

// A tree that did not grow, and one that no sequence has: all zeros.
TEST(SelectNodes, LeavesRootsAlone) {
  on_every_path([] {
    GrowingTrees trees = selection_tensors(std::vector<SelectedTree>(2), 4);
    trees.state[1].zero_();
    const GrowingTrees kept = here::select_nodes(trees, {true, true}, 2);
    const auto* states = static_cast<const TreeState*>(kept.state.const_data_ptr());
    EXPECT_EQ(states[0].nodes, 1);
    EXPECT_EQ(states[1].nodes, 0);
  });
}

}  // namespace
}  // namespace clover::kernels
