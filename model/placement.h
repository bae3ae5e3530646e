#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/attention.h"

namespace clover::model {

/// Where the rows of a pass go in the cache, and what each attends to.
struct Placement {
  at::Tensor cos, sin;  // fp32 [R, d/2]
  at::Tensor slots;     // i64 [R]
  kernels::AttentionRows rows;
};

/// What a pass reads besides weights and cache.
struct PassInputs {
  at::Tensor ids;  // i64 [R]
  Placement placement;
};

/// All of it in one tensor of bytes, so that one copy takes it to a GPU (`inputs` on the CPU).
at::Tensor bytes_of(const PassInputs& inputs);

/// The inputs, of the shapes of `like`, as views of what `bytes_of` made of them, wherever that is by now.
PassInputs views_of(const at::Tensor& bytes, const PassInputs& like);

/// The inputs on `device`: themselves on the CPU.
PassInputs to_device(const PassInputs& inputs, at::Device device);

/// How large the inputs of a recorded pass are.
struct PassShape {
  int64_t rows, sequences, pages, path;
  bool holds(const PassInputs& inputs) const;
};

/// Memory on the CPU for inputs of exactly that shape, and of the dtypes and the rotary width of `like`.
struct PaddedInputs {
  PaddedInputs(const PassShape& shape, const PassInputs& like);

  /// Takes `inputs` over.  The rows added attend to nothing, belong to a sequence of their own and write
  /// their keys and values to `slot`; no other row's result depends on them.
  void fill(const PassInputs& inputs, int64_t slot);

  at::Tensor bytes;
  PassInputs views;  // of the bytes
};

}  // namespace clover::model
