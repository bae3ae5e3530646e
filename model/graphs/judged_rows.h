#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kernels/trees/follow_trees.h"
#include "model/cache/placement.h"
#include "model/target/target.h"

namespace clover::model {

/// Trees of a pass that the target has judged, on a GPU, and that nobody has followed yet.
struct JudgedRows {
  at::Tensor tokens;  // i64 [R] the target's own after each row, on the device; -1: none
  Features features;  // of the R rows
  std::vector<int64_t> ids, parents, slots;  // [R], as kernels::JudgedTrees has them
  std::vector<kernels::TreePlace> trees;     // whose ranges are of `seen`
  // Rows that a drafter is to see, [P]: of `features` or, from R on, of the parts behind them; those that
  // trees' ranges take are not known yet.
  std::vector<int64_t> seen;
};

/// Follows them on the device.
class FollowedRows {
 public:
  explicit FollowedRows(const JudgedRows& judged);

  /// Writes the tokens after the accepted rows to `inputs.ids`, and where each tree's last one stands among
  /// the rows seen to `inputs.wanted`.
  void follow(const PassInputs& inputs);

  const at::Tensor& seen() const { return followed_.seen; }    // i64 [P]
  const at::Tensor& moves() const { return followed_.moves; }  // KvCache::move's

 private:
  kernels::JudgedTrees judged_;
  kernels::FollowedTrees followed_;
};

}  // namespace clover::model
