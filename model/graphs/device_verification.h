#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kernels/trees/verify_trees.h"
#include "model/cache/placement.h"
#include "model/target/target.h"

namespace clover::model {

/// The candidate trees of a pass on a GPU, and the target's tokens, which the CPU does not know yet.
struct UnverifiedTrees {
  at::Tensor tokens;  // i64 [R] the target's token after each row of the pass, on the GPU; -1: none
  Features features;  // of the R rows, on the GPU
  std::vector<int64_t> ids, parents, slots;  // [R], as in kernels::VerifyInput
  std::vector<kernels::TreeRows> tree_rows;  // for each tree, its rows and its range of `drafter_rows`
  /// The rows that the drafter reads after the pass, [P].  Numbers below R are rows of `features`; from R on
  /// they are rows of DraftInput::parts (draft_runner.h).  The GPU fills each tree's range with the tree's
  /// accepted rows.
  std::vector<int64_t> drafter_rows;
};

/// Finds the accepted rows of such trees on the GPU (kernels/trees/verify_trees.h).  On the CPU,
/// infer/tree/verify.h does the same.
class DeviceVerification {
 public:
  /// Copies the trees to the GPU.
  explicit DeviceVerification(const UnverifiedTrees& trees);

  /// Queues the kernel that fills drafter_rows() and moves().  It also writes to `inputs`, the inputs of the
  /// draft that follows: to `ids` the token after each of the drafter's rows, and to `wanted_rows` the index
  /// of each tree's last accepted row among them.
  void launch(const PassInputs& inputs);

  const at::Tensor& drafter_rows() const { return output_.drafter_rows; }  // i64 [P], on the GPU
  const at::Tensor& moves() const { return output_.moves; }                // as KvCache::compact takes them

 private:
  kernels::VerifyInput input_;
  kernels::VerifyOutput output_;
};

}  // namespace clover::model
