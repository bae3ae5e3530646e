#pragma once

#include <ATen/ops/empty.h>

#include <memory>

#include "kernels/weights/packed_weight.h"
#include "model/drafters/module.h"

namespace clover::model {

/// The layers that drafters consist of.  Each has two implementations behind one call: a trainable one (fp32
/// weights, ATen, autograd) and, between `pack` and `unpack`, a frozen one on the row-independent kernels.
/// They are made on the CPU; `pack` is called where the weights have been moved to.

/// A norm's weight or a bias rounded to `dtype`, as a checkpoint holds it, in fp32: so that heads guess alike
/// before they are saved and after they are loaded.
at::Tensor rounded_vector(const at::Tensor& vector, at::ScalarType dtype);

/// y = x W^T (+ b): [R, K] -> fp32 [R, N].
class Linear : public Module {
 public:
  Linear(int64_t outputs, int64_t inputs, bool with_bias);  // all zero
  /// `training_dtype`: of the factors of a trainable product.
  at::Tensor forward(const at::Tensor& x, at::ScalarType training_dtype) const;
  void pack(at::ScalarType dtype) override {
    packed_ = kernels::PackedWeight::pack({rounded(dtype)}).to(weight.device());
    if (bias.defined()) packed_bias_ = rounded_vector(bias, dtype);
  }
  void unpack() override { packed_ = {}, packed_bias_ = at::Tensor(); }
  /// The weight as it is packed, on the CPU: for layers that pack several as one.
  at::Tensor rounded(at::ScalarType dtype) const { return weight.detach().cpu().to(dtype); }

  at::Tensor weight;  // fp32 [N, K]
  at::Tensor bias;    // fp32 [N] or undefined

 private:
  kernels::PackedWeight packed_;
  at::Tensor packed_bias_;
};

/// w * x / sqrt(mean(x^2) + eps): fp32 [R, H] -> fp32 [R, H], or the frozen dtype when packed.
class RmsNorm : public Module {
 public:
  RmsNorm(const at::Tensor& initial /* [H] */, double eps);
  at::Tensor forward(const at::Tensor& x) const;
  /// The same of x[rows[r]]; rows i64 [R].
  at::Tensor forward_rows(const at::Tensor& x, const at::Tensor& rows) const;
  at::Tensor forward_rows(const kernels::PackedWeight& x, const at::Tensor& rows) const;
  /// The same of x + silu(a), both fp32 [R, H].
  at::Tensor forward_add_silu(const at::Tensor& x, const at::Tensor& a) const;
  void pack(at::ScalarType dtype) override { frozen_ = dtype, packed_ = rounded_vector(weight, dtype); }
  void unpack() override { frozen_ = at::ScalarType::Undefined, packed_ = at::Tensor(); }

  at::Tensor weight;  // fp32 [H]

 private:
  bool frozen() const { return frozen_ != at::ScalarType::Undefined; }
  at::Tensor empty_output(int64_t rows) const;  // for a kernel to fill

  double eps_;
  at::ScalarType frozen_ = at::ScalarType::Undefined;
  at::Tensor packed_;
};

/// z + silu(A z + b), A and b zero at first: Medusa's residual block.  fp32 [R, H] -> fp32 [R, H].
class ResBlock : public Module {
 public:
  explicit ResBlock(int64_t hidden);
  at::Tensor forward(const at::Tensor& z, at::ScalarType training_dtype) const;
  /// norm(forward(z)); `rounded`: z in the frozen dtype, or undefined.
  at::Tensor forward_normed(const at::Tensor& z, const at::Tensor& rounded, const RmsNorm& norm,
                            at::ScalarType training_dtype) const;

 private:
  std::shared_ptr<Linear> linear_;
};

/// x + silu(a), both fp32 [R, H]: differentiable where `a` needs gradients, else the kernel.
at::Tensor add_silu(const at::Tensor& x, const at::Tensor& a);

}  // namespace clover::model
