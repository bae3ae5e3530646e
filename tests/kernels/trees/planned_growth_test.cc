#include <ATen/ATen.h>

#include <algorithm>

#include "tests/kernels/here.h"
#include "tests/kernels/trees/growing_trees.h"

namespace clover::kernels {
namespace {

using namespace growing;

/// A random plan of levels, parents ascending; places of live nodes; by plain loops.
std::vector<PlannedNode> random_plan(Growth& growth, int64_t most, int64_t width) {
  std::vector<PlannedNode> plan{{}};
  for (size_t begin = 0, end = 1; std::ssize(plan) < most && begin < end; begin = end, end = plan.size()) {
    for (size_t parent = begin; parent < end; ++parent)
      for (int64_t rank = 0; rank < width && std::ssize(plan) < most; ++rank)
        if (growth.draw(0, 2) == 0 || plan.size() == 1)
          plan.push_back({static_cast<int32_t>(parent), static_cast<int32_t>(rank), -1});
    int32_t live = 0;
    for (size_t parent = begin; parent < end; ++parent)
      plan[parent].live_index =
          std::ranges::count(plan, static_cast<int32_t>(parent), &PlannedNode::parent) > 0 ? live++ : -1;
  }
  return plan;
}

TEST(GrowLevel, FollowsThePlanOfEachTree) {
  on_every_path([] {
    Growth growth(8);
    for (int round = 0; round < (here::emulated() ? 10 : 60); ++round) {
      SCOPED_TRACE(round);
      Level level;
      const bool one_row = growth.draw(0, 2) == 0;
      level.rule = {.max_candidates = growth.one_of({2, 6}), .one_row_per_tree = one_row};
      const int64_t room = 90, count = growth.one_of({1, 3});
      std::vector<Tree> trees(count);
      std::vector<std::vector<PlannedNode>> plans;
      for (int32_t i = 0; i < count; ++i) {
        plans.push_back(random_plan(growth, growth.draw(2, room), level.rule.max_candidates));
        trees[i].guess_row = i;
        trees[i].most = static_cast<int32_t>(plans[i].size());
        trees[i].levels = 100;
      }
      GrowingTrees found = tensors_of(trees, room, count * room);
      found.plans = at::zeros({count, room, planned_node_size}, at::kInt);
      for (int64_t i = 0; i < count; ++i)
        std::ranges::copy(plans[i], static_cast<PlannedNode*>(found.plans[i].mutable_data_ptr()));
      std::vector<int64_t> rows(count);  // of guesses, of each tree's first live node
      for (int64_t i = 0; i < count; ++i) rows[i] = i;
      for (int64_t guessing = count; guessing > 0;) {
        growth.guess(level, guessing, level.rule.max_candidates);
        here::grow_level(level.logits, level.ids, level.log_sums, level.rule, 1, found);
        std::vector<std::pair<int64_t, int64_t>> next;
        for (int64_t i = 0; i < count; ++i) {
          Tree& tree = trees[i];
          const int64_t before = std::ssize(tree.nodes), row = rows[i];
          rows[i] = std::ssize(next);
          for (int64_t at = before; at < tree.most && plans[i][at].parent < before; ++at) {
            const PlannedNode& plan = plans[i][at];
            const int64_t from = row + (one_row ? 0 : plans[i][plan.parent].live_index);
            tree.nodes.push_back(
                {level.ids[from][plan.rank].item<int64_t>(), plan.parent,
                 tree.nodes[plan.parent].score * static_cast<float>(probability(level, from, plan.rank))});
            if (plan.live_index == 0 || (plan.live_index > 0 && !one_row))
              next.emplace_back(from, tree.nodes.back().id);
          }
          for (int64_t node = before; node < std::ssize(tree.nodes); ++node) {
            ASSERT_EQ(found.ids[i][node].item<int64_t>(), tree.nodes[node].id) << node;
            ASSERT_EQ(found.parent[i][node].item<int32_t>(), tree.nodes[node].parent) << node;
            ASSERT_NEAR(found.score[i][node].item<float>(), tree.nodes[node].score, 1e-5) << node;
          }
        }
        ASSERT_NO_FATAL_FAILURE(expect_rows(next, found));
        guessing = std::ssize(next);
      }
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(std::ssize(trees[i].nodes), trees[i].most);
    }
  });
}

}  // namespace
}  // namespace clover::kernels
