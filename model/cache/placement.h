#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/attention/attention.h"

namespace clover::model {

/// Where the keys and values of R rows are written in the cache, and what each row attends to.
struct Placement {
  at::Tensor cos, sin;          // fp32 [R, d/2] of the rows' positions, for RoPE
  at::Tensor slots;             // i64 [R], cache slots (KvCache)
  kernels::AttentionRows rows;  // the paths that the rows attend to
};

/// What a pass of the target, or a draft, reads besides weights and cache.
struct PassInputs {
  at::Tensor ids;             // i64 [R]
  Placement placement;        // undefined for a drafter without layers of its own
  at::Tensor wanted_rows;     // i64 [W] RowBatch::wanted_rows, or the frontier of a draft; undefined: all
  bool arg_max_only = false;  // RowBatch::arg_max_only
  // i32 [W, ..], only for a draft: the trees to grow at these rows (DraftRunner::initial_trees in
  // model/graphs/draft_runner.cc has the columns)
  at::Tensor trees;
};

/// Copies all inputs to `device` in one transfer.  Returns `inputs` themselves if it is the CPU.
PassInputs to_device(const PassInputs& inputs, at::Device device);

/// The sizes that inputs are padded to for a captured graph.
struct PassShape {
  int64_t rows;         // R
  int64_t sequences;    // rows of the page table; the last one is for padding rows
  int64_t pages;        // of the longest sequence
  int64_t path;         // elements of AttentionRows::path: the slots of all rows together
  int64_t wanted_rows;  // W
  /// Whether inputs can be padded to these sizes.
  bool holds(const PassInputs& inputs) const;
};

/// Buffers at fixed device addresses from which a captured graph reads its inputs.  They have the sizes of
/// `shape`.  `like`: inputs that define the same tensors, with the same d/2.
class PaddedInputs {
 public:
  PaddedInputs(const PassShape& shape, const PassInputs& like, at::Device device);

  /// Copies `inputs` to the buffers and pads them.  Padding rows attend to nothing, belong to a sequence of
  /// their own and write their keys and values to `padding_slot`, so that no other row depends on them.
  /// Padding elements of wanted_rows are row 0.  Padding trees are all zeros, and so do not grow.
  void upload(const PassInputs& inputs, int64_t padding_slot);

  const PassInputs& on_device() const { return on_device_; }

 private:
  void fill_host_buffer(const PassInputs& inputs, int64_t padding_slot);

  at::Tensor bytes_, bytes_on_device_;  // u8, all inputs packed (bytes_of in placement.cc), on CPU and device
  PassInputs on_host_, on_device_;      // views of them
};

}  // namespace clover::model
