#pragma once

#include <ATen/core/Tensor.h>

namespace clover::kernels {

/// A weight matrix [N, K] (N outputs, K inputs) in the one layout that all CPU paths and GPUs stream:
/// panels of 16 outputs, zero-padded at the end.
///   bf16        [ceil(N/16), ceil(K/32)*16, 16, 2]: pairs of inputs side by side, as VDPBF16PS, AMX tiles
///               and tensor cores read them
///   fp16, fp32  [ceil(N/16), K, 16]; on a GPU fp16 is paired as bf16 is
class PackedWeight {
 public:
  PackedWeight() = default;

  /// Packs `weights` ([N_i, K], same dtype bf16|fp16|fp32, CPU) stacked along their outputs.  The sources are
  /// read one by one, so they need not exist concatenated.
  static PackedWeight pack(at::TensorList weights);

  /// The same on `device`.
  PackedWeight to(at::Device device) const;

  /// The same with 16-bit inputs paired, where it lies: what the kernels of a GPU read.
  PackedWeight for_tensor_cores() const;

  /// Rows `ids` (i64 [R], each in [0, N), on the weight's device) as a dense [R, K] tensor of the weight's
  /// dtype: the embedding look-up of a tied head.
  at::Tensor rows(const at::Tensor& ids) const;

  /// The whole matrix, dense [N, K] on the CPU.
  at::Tensor unpack() const;

  bool defined() const { return panels_.defined(); }
  int64_t outputs() const { return outputs_; }  // N
  int64_t inputs() const { return inputs_; }    // K
  at::ScalarType dtype() const { return panels_.scalar_type(); }
  at::Device device() const { return panels_.device(); }
  const at::Tensor& panels() const { return panels_; }
  int64_t bytes() const { return panels_.numel() * panels_.element_size(); }

 private:
  at::Tensor panels_;
  int64_t outputs_ = 0;
  int64_t inputs_ = 0;
};

}  // namespace clover::kernels
