#include "kernels/trees/tree_growth.h"

#include "kernels/op/check.h"
#include "kernels/op/run.h"

namespace clover::kernels {
namespace {

const PlannedNode* plans_of(const GrowingTrees& trees) {
  return trees.plans.defined() ? static_cast<const PlannedNode*>(trees.plans.const_data_ptr()) : nullptr;
}

}  // namespace

void grow_level(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& log_sums,
                const LevelRule& rule, int64_t max_live, GrowingTrees& trees) {
  const char* const name = "grow_level";
  const at::Device device = device_of(name, logits);
  check_tensor(name, "logits", logits, {-1, -1}, at::kFloat, device);
  check_tensor(name, "ids", ids, logits.sizes(), at::kLong, device);
  check_tensor(name, "log_sums", log_sums, {logits.size(0)}, at::kFloat, device);
  check_tensor(name, "trees.ids", trees.ids, {-1, -1}, at::kLong, device);
  check_tensor(name, "trees.parent", trees.parent, trees.ids.sizes(), at::kInt, device);
  check_tensor(name, "trees.score", trees.score, trees.ids.sizes(), at::kFloat, device);
  check_tensor(name, "trees.state", trees.state, {trees.ids.size(0), tree_state_size}, at::kInt, device);
  check_tensor(name, "trees.rows", trees.rows, {2, -1}, at::kLong, device);
  check_tensor(name, "trees.row_count", trees.row_count, {1}, at::kInt, device);
  if (trees.plans.defined())
    check_tensor(name, "trees.plans", trees.plans, {trees.ids.size(0), -1, planned_node_size}, at::kInt,
                 device);
  TORCH_CHECK(rule.max_candidates >= 1 && rule.max_candidates <= logits.size(1), name, ": max_candidates is ",
              rule.max_candidates, ", expected 1 to the ", logits.size(1), " guesses of a row.");
  TORCH_CHECK(max_live >= 1 && max_live <= 64, name, ": ", max_live, " live nodes, expected 1 to 64.");
  const int64_t needed = trees.ids.size(0) * (rule.one_row_per_tree ? 1 : max_live);
  TORCH_CHECK(trees.rows.size(1) >= needed, name, ": room for ", trees.rows.size(1), " rows, expected ",
              needed, ".");
  if (trees.ids.size(0) == 0) return;
  run(name, logits,
      GrowthCall{.logits = logits.const_data_ptr<float>(),
                 .ids = ids.const_data_ptr<int64_t>(),
                 .log_sums = log_sums.const_data_ptr<float>(),
                 .guess_rows = logits.size(0),
                 .guesses = logits.size(1),
                 .rule = rule,
                 .max_live = max_live,
                 .trees = trees.ids.size(0),
                 .node_capacity = trees.ids.size(1),
                 .next_row_capacity = trees.rows.size(1),
                 .plans = plans_of(trees),
                 .plan_capacity = trees.plans.defined() ? trees.plans.size(1) : 0,
                 .tree_ids = trees.ids.mutable_data_ptr<int64_t>(),
                 .tree_parent = trees.parent.mutable_data_ptr<int32_t>(),
                 .tree_score = trees.score.mutable_data_ptr<float>(),
                 .states = static_cast<TreeState*>(trees.state.mutable_data_ptr()),
                 .next_rows = trees.rows.mutable_data_ptr<int64_t>(),
                 .row_count = trees.row_count.mutable_data_ptr<int32_t>()});
}

}  // namespace clover::kernels
