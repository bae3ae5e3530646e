#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kernels/trees/verify_trees.h"
#include "model/cache/placement.h"
#include "model/target/target.h"

namespace clover::model {

/// The trees of a pass that runs on a GPU: their R rows and, on the device, the target's tokens, which nobody
/// has compared with the trees yet.
struct UnverifiedTrees {
  at::Tensor tokens;  // i64 [R] the target's token after each row, on the device; -1: none
  Features features;  // of the R rows
  std::vector<int64_t> ids, parents, slots;  // [R], as in kernels::verify_trees
  std::vector<kernels::TreeRows> places;     // where each tree's rows lie, and its range in `drafter_rows`
  /// The rows that a drafter reads behind the pass, [P]: rows of `features` or, from R on, of the parts that
  /// follow them (DraftInput::parts).  The GPU fills in the ranges of trees with their accepted rows.
  std::vector<int64_t> drafter_rows;
};

/// Finds the accepted rows of such trees on the GPU: what infer/tree/verify.h does on the CPU.
class DeviceVerification {
 public:
  explicit DeviceVerification(const UnverifiedTrees& trees);

  /// Launches it.  `inputs.ids` receive the tokens after the accepted rows, `inputs.wanted` the place of each
  /// tree's last accepted row among `drafter_rows`.
  void launch(const PassInputs& inputs);

  const at::Tensor& drafter_rows() const { return output_.drafter_rows; }  // i64 [P], on the GPU
  const at::Tensor& moves() const { return output_.moves; }                // the argument of KvCache::move

 private:
  kernels::VerifyInput input_;
  kernels::VerifyOutput output_;
};

}  // namespace clover::model
