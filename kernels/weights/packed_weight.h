#pragma once

#include <ATen/core/Tensor.h>

namespace clover::kernels {

/// A weight matrix [N, K] (N outputs, K inputs) in the layout that the kernels of all CPU paths and GPUs
/// read: panels of 16 outputs, padded with zeros.
///   paired    [ceil(N/16), ceil(K/32)*16, 16, 2]: panel, pair of inputs, output, input of the pair
///   unpaired  [ceil(N/16), K, 16]: panel, input, output
/// bf16 is paired, because VDPBF16PS, AMX tiles and tensor cores read two inputs at once; fp32 is unpaired;
/// fp16 is unpaired on the CPU and paired on a GPU.
class PackedWeight {
 public:
  PackedWeight() = default;

  /// Packs `weights` ([N_i, K], all bf16, fp16 or fp32, on the CPU), concatenated along their outputs.  Needs
  /// no concatenated copy of them.
  static PackedWeight pack(at::TensorList weights);

  /// Copies a weight on the CPU to `device`; on a GPU 16-bit inputs are paired.
  PackedWeight to(at::Device device) const;

  /// The same on the same device, with fp16 inputs paired too: the layout that a GPU's kernels read.
  PackedWeight for_tensor_cores() const;

  /// Rows `ids` (i64 [R], each in [0, N), on the weight's device) as a dense [R, K] tensor of the weight's
  /// dtype: the embedding look-up of a target whose embedding is its output matrix as well.  A GPU does not
  /// check the ids.
  at::Tensor rows(const at::Tensor& ids) const;

  /// The whole matrix, dense [N, K] on the CPU.
  at::Tensor unpack() const;

  bool defined() const { return panels_.defined(); }
  int64_t outputs() const { return outputs_; }  // N
  int64_t inputs() const { return inputs_; }    // K
  at::ScalarType dtype() const { return panels_.scalar_type(); }
  at::Device device() const { return panels_.device(); }
  /// The packed matrix, in the layout above.
  const at::Tensor& panels() const { return panels_; }
  /// Bytes of panels(), padding included.
  int64_t bytes() const { return panels_.numel() * panels_.element_size(); }

 private:
  at::Tensor panels_;
  int64_t outputs_ = 0;
  int64_t inputs_ = 0;
};

}  // namespace clover::kernels
