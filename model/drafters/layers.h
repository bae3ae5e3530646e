#pragma once

#include <ATen/ops/empty.h>

#include <memory>

#include "kernels/weights/packed_weight.h"
#include "model/drafters/module.h"
#include "model/drafters/setting.h"

namespace clover::model {

// The layers that drafters consist of.  Each has two implementations behind one call: a trainable one (fp32
// weights, ATen, autograd) and, between `pack` and `unpack`, a frozen one on the kernels of kernels/, whose
// rows do not depend on each other.  Layers are made on the CPU, then moved; `pack` keeps the device.

/// A norm's weight or a bias, rounded to `dtype` and back to fp32.  Checkpoints store it in `dtype`, so heads
/// guess the same before they are saved and after they are loaded.
at::Tensor rounded_vector(const at::Tensor& vector, at::ScalarType dtype);

/// The root mean square of a tensor's values.
double root_mean_square(const at::Tensor& tensor);

/// y = x W^T + b: x [R, K] -> fp32 [R, N]; b is optional.
class Linear : public Module {
 public:
  /// Weight and bias begin as zeros.  target_rms: of the weight, as in Module::target_rms().
  Linear(int64_t outputs, int64_t inputs, bool with_bias, double target_rms = 0);
  /// `training_dtype`: x and W are rounded to it when trainable.
  at::Tensor forward(const at::Tensor& x, at::ScalarType training_dtype) const;
  void pack(at::ScalarType dtype) override {
    packed_ = kernels::PackedWeight::pack({rounded(dtype)}).to(weight.device());
    if (bias.defined()) packed_bias_ = rounded_vector(bias, dtype);
  }
  void unpack() override { packed_ = {}, packed_bias_ = at::Tensor(); }
  /// The weight in `dtype` on the CPU, for layers that pack several weights as one matrix.
  at::Tensor rounded(at::ScalarType dtype) const { return weight.detach().cpu().to(dtype); }

  at::Tensor weight;  // fp32 [N, K]
  at::Tensor bias;    // fp32 [N] or undefined

 private:
  kernels::PackedWeight packed_;
  at::Tensor packed_bias_;
};

/// w * x / sqrt(mean(x^2) + eps), the mean over a row: fp32 [R, H] -> fp32 [R, H]; frozen: -> [R, H] in the
/// dtype of `pack`.
class RmsNorm : public Module {
 public:
  RmsNorm(const at::Tensor& initial /* [H] */, double eps);
  at::Tensor forward(const at::Tensor& x) const;
  /// The same of the rows x[rows]; rows i64 [R].
  at::Tensor forward_rows(const at::Tensor& x, const at::Tensor& rows) const;
  at::Tensor forward_rows(const kernels::PackedWeight& x, const at::Tensor& rows) const;
  /// The same of x + silu(a), both fp32 [R, H].
  at::Tensor forward_add_silu(const at::Tensor& x, const at::Tensor& a) const;
  void pack(at::ScalarType dtype) override { frozen_dtype_ = dtype, packed_ = rounded_vector(weight, dtype); }
  void unpack() override { frozen_dtype_ = at::ScalarType::Undefined, packed_ = at::Tensor(); }

  at::Tensor weight;  // fp32 [H]

 private:
  bool frozen() const { return frozen_dtype_ != at::ScalarType::Undefined; }
  at::Tensor empty_output(int64_t rows) const;  // [rows, H] in the frozen dtype, for a kernel to fill

  double eps_;
  at::ScalarType frozen_dtype_ = at::ScalarType::Undefined;
  at::Tensor packed_;  // `weight`, rounded; undefined while trainable
};

/// The declaration of the setting `layers`, for kinds with residual blocks (ResBlock).
Setting residual_blocks_setting(int64_t default_value);

/// Medusa's residual block, z + silu(A z + b): fp32 [R, H] -> fp32 [R, H].  A [H, H] and b [H] begin as
/// zeros, so the block begins as the identity.
class ResBlock : public Module {
 public:
  explicit ResBlock(int64_t hidden);
  at::Tensor forward(const at::Tensor& z, at::ScalarType training_dtype) const;
  /// norm(forward(z)).  `rounded`: z in the frozen dtype if the caller has it, else undefined.
  at::Tensor forward_normed(const at::Tensor& z, const at::Tensor& rounded, const RmsNorm& norm,
                            at::ScalarType training_dtype) const;

 private:
  std::shared_ptr<Linear> linear_;
};

/// x + silu(a), both fp32 [R, H]: by ATen if `a` requires gradients, else by the kernel.
at::Tensor add_silu(const at::Tensor& x, const at::Tensor& a);

}  // namespace clover::model
