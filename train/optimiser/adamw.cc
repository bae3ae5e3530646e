#include "train/optimiser/adamw.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <span>

#include "data/files/error.h"

namespace clover::train {
namespace {

constexpr const char* weight_prefix = "weight.";
constexpr const char* exp_avg_prefix = "exp_avg.";
constexpr const char* exp_avg_sq_prefix = "exp_avg_sq.";

std::string dtype_and_shape(at::ScalarType dtype, at::IntArrayRef shape) {
  return c10::str(dtype, " ", shape);
}

}  // namespace

AdamW::AdamW(data::NamedTensors parameters, AdamWSettings settings, const std::vector<double>& rate_scales)
    : parameters_(std::move(parameters)), settings_(settings) {
  TORCH_CHECK(rate_scales.empty() || rate_scales.size() == parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    TORCH_CHECK(parameter.scalar_type() == at::kFloat, "parameter ", name, " is not fp32");
    exp_avgs_.push_back(at::zeros_like(parameter, at::TensorOptions().requires_grad(false)));
    exp_avg_sqs_.push_back(at::zeros_like(parameter, at::TensorOptions().requires_grad(false)));
    Group& group =
        group_of(parameter.dim() >= 2 ? settings.weight_decay : 0, rate_scales.empty() ? 1 : rate_scales[i]);
    group.parameters.push_back(parameter);
    group.exp_avgs.push_back(exp_avgs_.back());
    group.exp_avg_sqs.push_back(exp_avg_sqs_.back());
    group.steps.push_back(at::zeros({}, parameter.options().requires_grad(false)));
  }
}

AdamW::Group& AdamW::group_of(double weight_decay, double rate_scale) {
  for (Group& group : groups_)
    if (group.weight_decay == weight_decay && group.rate_scale == rate_scale) return group;
  return groups_.emplace_back(Group{weight_decay, rate_scale, {}, {}, {}, {}});
}

std::vector<at::Tensor> AdamW::gradients(const std::vector<at::Tensor>& parameters) const {
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    gradients.push_back(gradient.defined() ? gradient : at::zeros_like(parameter));
  }
  return gradients;
}

void AdamW::zero_gradients() {
  for (auto& [name, parameter] : parameters_) parameter.mutable_grad() = at::Tensor();
}

double AdamW::clip_gradients(double max_norm) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> norms;
  for (const auto& [name, parameter] : parameters_)
    if (parameter.grad().defined()) norms.push_back(parameter.grad().norm());
  double sum_of_squares = 0;
  if (!norms.empty()) {
    const at::Tensor norms_on_host = at::stack(norms).cpu();
    for (const float norm : std::span(norms_on_host.const_data_ptr<float>(), norms.size()))
      sum_of_squares += static_cast<double>(norm) * norm;
  }
  const double norm = std::sqrt(sum_of_squares);
  if (max_norm > 0 && norm > max_norm) {
    for (auto& [name, parameter] : parameters_) {
      if (parameter.grad().defined()) parameter.mutable_grad().mul_(max_norm / (norm + 1e-6));
    }
  }
  return norm;
}

void AdamW::step(double rate) {
  at::NoGradGuard no_grad;
  for (auto& group : groups_) {
    for (auto& steps : group.steps) steps.add_(1);
    at::_fused_adamw_(group.parameters, gradients(group.parameters), group.exp_avgs, group.exp_avg_sqs,
                      /*max_exp_avg_sqs=*/{}, group.steps, rate * group.rate_scale, settings_.beta1,
                      settings_.beta2, group.weight_decay, settings_.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false);
  }
}

void AdamW::skip_step() {
  for (auto& group : groups_)
    for (auto& steps : group.steps) steps.add_(1);
}

data::NamedTensors AdamW::state() const {
  data::NamedTensors tensors;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    tensors.emplace_back(weight_prefix + name, parameter.detach());
    tensors.emplace_back(exp_avg_prefix + name, exp_avgs_[i]);
    tensors.emplace_back(exp_avg_sq_prefix + name, exp_avg_sqs_[i]);
  }
  return tensors;
}

void AdamW::check_state(const data::NamedTensors& parameters, const data::SafetensorsReader& file,
                        const std::string& where) {
  for (const auto& [name, parameter] : parameters) {
    for (const char* prefix : {weight_prefix, exp_avg_prefix, exp_avg_sq_prefix}) {
      const data::TensorInfo& info = file.info(prefix + name);
      if (info.dtype != at::kFloat || parameter.sizes() != info.shape) {
        throw data::InputError(where + ": tensor " + prefix + name + " is " +
                               dtype_and_shape(info.dtype, info.shape) + ", expected " +
                               dtype_and_shape(at::kFloat, parameter.sizes()) +
                               ": continue from another checkpoint.");
      }
    }
  }
  if (file.names().size() != 3 * parameters.size()) {
    throw data::InputError(where + " holds " + std::to_string(file.names().size()) + " tensors, expected " +
                           std::to_string(3 * parameters.size()) + " for the run's settings: continue from " +
                           "another checkpoint.");
  }
}

void AdamW::restore(const data::SafetensorsReader& file, const std::string& where, int64_t steps) {
  at::NoGradGuard no_grad;
  check_state(parameters_, file, where);
  for (const auto& [name, tensor] : state()) at::Tensor(tensor).copy_(file.read(name));
  for (auto& group : groups_) {
    for (auto& count : group.steps) count.fill_(static_cast<double>(steps));
  }
}

}  // namespace clover::train
