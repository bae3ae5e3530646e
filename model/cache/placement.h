#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/attention/attention.h"

namespace clover::model {

/// Where the rows of a pass go in the cache, and what each attends to.
struct Placement {
  at::Tensor cos, sin;  // fp32 [R, d/2]
  at::Tensor slots;     // i64 [R], of the whole cache (KvCache)
  kernels::AttentionRows rows;
};

/// What a pass reads besides weights and cache.
struct PassInputs {
  at::Tensor ids;          // i64 [R]
  Placement placement;     // undefined for a drafter without layers of its own
  at::Tensor wanted;       // i64 [W] rows whose results are wanted; undefined: all
  bool best_only = false;  // RowBatch::best_only
  at::Tensor trees;  // i32 [W, ..] states of trees to grow at these rows (GrowingTrees::state), or undefined
};

/// The inputs on `device`, by one copy; for the CPU the inputs themselves.
PassInputs to_device(const PassInputs& inputs, at::Device device);

/// The sizes that inputs are padded to for a captured graph.
struct PassShape {
  int64_t rows, sequences, pages, path, wanted;
  bool holds(const PassInputs& inputs) const;
};

/// A fixed place on a device for inputs of exactly that shape, where a captured graph reads them: those
/// tensors that `like` defines, of its rotary width.
class PaddedInputs {
 public:
  PaddedInputs(const PassShape& shape, const PassInputs& like, at::Device device);

  /// Copies `inputs` there, padded.  Padding rows attend to nothing, belong to a sequence of their own and
  /// write their keys and values to `slot`, so no other row depends on them.  Padding `wanted` rows are row
  /// 0; padding trees are all zeros, which do not grow.
  void upload(const PassInputs& inputs, int64_t slot);

  const PassInputs& on_device() const { return on_device_; }

 private:
  void fill(const PassInputs& inputs, int64_t slot);

  at::Tensor bytes_, bytes_on_device_;
  PassInputs on_host_, on_device_;  // views of the bytes
};

}  // namespace clover::model
