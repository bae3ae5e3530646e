#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/attention/attention.h"

namespace clover::model {

/// Where the rows of a pass go in the cache, and what each attends to.
struct Placement {
  at::Tensor cos, sin;  // fp32 [R, d/2]
  at::Tensor slots;     // i64 [R]
  kernels::AttentionRows rows;
};

/// What a pass reads besides weights and cache.
struct PassInputs {
  at::Tensor ids;          // i64 [R]
  Placement placement;     // undefined for a drafter without layers of its own
  at::Tensor wanted;       // i64 [W] rows whose results are wanted; undefined: all
  bool best_only = false;  // RowBatch::best_only
  at::Tensor trees;        // i32 [W, ..] the trees to grow behind them (GrowingTrees::state); undefined: none
};

/// The inputs on `device`, in one copy: themselves on the CPU.
PassInputs to_device(const PassInputs& inputs, at::Device device);

/// How large the inputs of a recorded pass are.
struct PassShape {
  int64_t rows, sequences, pages, path, wanted;
  bool holds(const PassInputs& inputs) const;
};

/// A fixed place on a device for inputs of exactly that shape, with what `like` has of them and its rotary
/// width.
class PaddedInputs {
 public:
  PaddedInputs(const PassShape& shape, const PassInputs& like, at::Device device);

  /// Copies `inputs` there.  The rows added attend to nothing, belong to a sequence of their own and write
  /// their keys and values to `slot`; no other row's result depends on them.  Rows added to the wanted ones
  /// are the first; trees added are all zeros, which do not grow.
  void send(const PassInputs& inputs, int64_t slot);

  const PassInputs& there() const { return there_; }

 private:
  void fill(const PassInputs& inputs, int64_t slot);

  at::Tensor bytes_, bytes_there_;
  PassInputs here_, there_;  // views of the bytes
};

}  // namespace clover::model
