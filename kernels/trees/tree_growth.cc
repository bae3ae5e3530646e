#include "kernels/trees/tree_growth.h"

#include "kernels/check.h"
#include "kernels/cpu.h"
#include "kernels/gpu/cuda.h"

namespace clover::kernels {

void grow_level(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& log_sums,
                const LevelRule& rule, int64_t most_live, GrowingTrees& trees) {
  const char* const name = "grow_level";
  const bool cuda = on_cuda(name, logits);
  const at::Device device = logits.device();
  check_tensor(name, "logits", logits, {-1, -1}, at::kFloat, device);
  check_tensor(name, "ids", ids, logits.sizes(), at::kLong, device);
  check_tensor(name, "log_sums", log_sums, {logits.size(0)}, at::kFloat, device);
  check_tensor(name, "trees.ids", trees.ids, {-1, -1}, at::kLong, device);
  check_tensor(name, "trees.parent", trees.parent, trees.ids.sizes(), at::kInt, device);
  check_tensor(name, "trees.joint", trees.joint, trees.ids.sizes(), at::kFloat, device);
  check_tensor(name, "trees.state", trees.state, {trees.ids.size(0), tree_state_size}, at::kInt, device);
  check_tensor(name, "trees.rows", trees.rows, {2, -1}, at::kLong, device);
  check_tensor(name, "trees.row_count", trees.row_count, {1}, at::kInt, device);
  TORCH_CHECK(rule.width >= 1 && rule.width <= logits.size(1), name, ": the width is ", rule.width,
              ", expected 1 to the ", logits.size(1), " guesses of a row.");
  TORCH_CHECK(most_live >= 1 && most_live <= 64, name, ": ", most_live, " live nodes, expected 1 to 64.");
  const int64_t needed = trees.ids.size(0) * (rule.one_row_a_tree ? 1 : most_live);
  TORCH_CHECK(trees.rows.size(1) >= needed, name, ": room for ", trees.rows.size(1), " rows, expected ",
              needed, ".");
  if (trees.ids.size(0) == 0) return;
  (cuda ? cuda::grow_level : cpu::grow_level)(logits, ids, log_sums, rule, most_live, trees);
}

}  // namespace clover::kernels
