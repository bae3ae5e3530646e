#include "model/drafters/layers.h"

#include <ATen/ATen.h>

#include <cmath>

#include "kernels/linear/linear.h"
#include "kernels/rows/activation.h"
#include "kernels/rows/rms_norm.h"

namespace clover::model {

Setting residual_blocks_setting(int64_t default_value) {
  return Setting::integer("layers", default_value, 1, 8, "residual blocks before the output head");
}

at::Tensor rounded_vector(const at::Tensor& vector, at::ScalarType dtype) {
  return vector.detach().to(dtype).to(at::kFloat);
}

double root_mean_square(const at::Tensor& tensor) {
  return at::linalg_vector_norm(tensor.detach(), 2, c10::nullopt, /*keepdim=*/false, at::kFloat)
             .item<double>() /
         std::sqrt(static_cast<double>(tensor.numel()));
}

Linear::Linear(int64_t outputs, int64_t inputs, bool with_bias, double target_rms) {
  weight = register_parameter("weight", at::zeros({outputs, inputs}), target_rms);
  if (with_bias) bias = register_parameter("bias", at::zeros({outputs}));
}

at::Tensor Linear::forward(const at::Tensor& x, at::ScalarType training_dtype) const {
  if (!packed_.defined()) {
    const at::Tensor y = at::linear(x.to(training_dtype), weight.to(training_dtype)).to(at::kFloat);
    return bias.defined() ? y + bias : y;
  }
  at::Tensor y = at::empty({x.size(0), packed_.outputs()}, x.options().dtype(at::kFloat));
  kernels::linear(x.to(packed_.dtype()).contiguous(), packed_, packed_bias_, y);
  return y;
}

RmsNorm::RmsNorm(const at::Tensor& initial, double eps) : eps_(eps) {
  weight = register_parameter("weight", initial.detach().to(at::kCPU, at::kFloat).clone());
}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  if (!frozen()) return x * at::rsqrt(x.square().mean(-1, /*keepdim=*/true) + eps_) * weight;
  at::Tensor out = empty_output(x.size(0));
  kernels::rms_norm(x, packed_, eps_, out);
  return out;
}

at::Tensor RmsNorm::forward_rows(const at::Tensor& x, const at::Tensor& rows) const {
  if (!frozen()) return forward(x.index_select(0, rows));
  at::Tensor out = empty_output(rows.size(0));
  kernels::rms_norm_of(x, rows, packed_, eps_, out);
  return out;
}

at::Tensor RmsNorm::forward_rows(const kernels::PackedWeight& x, const at::Tensor& rows) const {
  if (!frozen()) return forward(x.rows(rows).to(at::kFloat));
  at::Tensor out = empty_output(rows.size(0));
  kernels::rms_norm_of(x, rows, packed_, eps_, out);
  return out;
}

at::Tensor RmsNorm::forward_add_silu(const at::Tensor& x, const at::Tensor& a) const {
  if (!frozen()) return forward(add_silu(x, a));
  at::Tensor out = empty_output(x.size(0));
  kernels::silu_rms_norm(x, a, packed_, eps_, out);
  return out;
}

at::Tensor RmsNorm::empty_output(int64_t rows) const {
  return at::empty({rows, weight.size(0)}, weight.options().dtype(frozen_dtype_));
}

ResBlock::ResBlock(int64_t hidden) {
  linear_ = register_module("linear", std::make_shared<Linear>(hidden, hidden, true));
}

at::Tensor ResBlock::forward(const at::Tensor& z, at::ScalarType training_dtype) const {
  return add_silu(z, linear_->forward(z, training_dtype));
}

at::Tensor ResBlock::forward_normed(const at::Tensor& z, const at::Tensor& rounded, const RmsNorm& norm,
                                    at::ScalarType training_dtype) const {
  return norm.forward_add_silu(z, linear_->forward(rounded.defined() ? rounded : z, training_dtype));
}

at::Tensor add_silu(const at::Tensor& x, const at::Tensor& a) {
  if (a.requires_grad()) return x + at::silu(a);
  at::Tensor sum = x.clone();
  kernels::add_silu_(sum, a);
  return sum;
}

}  // namespace clover::model
