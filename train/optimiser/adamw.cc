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
constexpr const char* first_prefix = "exp_avg.";
constexpr const char* second_prefix = "exp_avg_sq.";

std::string shown(at::ScalarType dtype, at::IntArrayRef shape) {
  return c10::str(dtype, " ", shape);
}

}  // namespace

AdamW::AdamW(data::NamedTensors parameters, AdamWSettings settings)
    : parameters_(std::move(parameters)), settings_(settings) {
  groups_.push_back({settings.weight_decay, {}, {}, {}, {}});
  groups_.push_back({0.0, {}, {}, {}, {}});
  for (const auto& [name, parameter] : parameters_) {
    TORCH_CHECK(parameter.scalar_type() == at::kFloat, "parameter ", name, " is not fp32");
    first_.push_back(at::zeros_like(parameter, at::TensorOptions().requires_grad(false)));
    second_.push_back(at::zeros_like(parameter, at::TensorOptions().requires_grad(false)));
    Group& group = groups_[parameter.dim() >= 2 ? 0 : 1];
    group.parameters.push_back(parameter);
    group.first.push_back(first_.back());
    group.second.push_back(second_.back());
    group.steps.push_back(at::zeros({}, parameter.options().requires_grad(false)));
  }
}

std::vector<at::Tensor> AdamW::gradients(const std::vector<at::Tensor>& parameters) const {
  std::vector<at::Tensor> all;
  for (const auto& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    all.push_back(gradient.defined() ? gradient : at::zeros_like(parameter));
  }
  return all;
}

void AdamW::zero_gradients() {
  for (auto& [name, parameter] : parameters_) parameter.mutable_grad() = at::Tensor();
}

double AdamW::clip_gradients(double limit) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> norms;
  for (const auto& [name, parameter] : parameters_)
    if (parameter.grad().defined()) norms.push_back(parameter.grad().norm());
  double square = 0;
  if (!norms.empty()) {
    const at::Tensor all = at::stack(norms).cpu();
    for (const float norm : std::span(all.const_data_ptr<float>(), norms.size()))
      square += static_cast<double>(norm) * norm;
  }
  const double norm = std::sqrt(square);
  if (limit > 0 && norm > limit) {
    for (auto& [name, parameter] : parameters_) {
      if (parameter.grad().defined()) parameter.mutable_grad().mul_(limit / (norm + 1e-6));
    }
  }
  return norm;
}

void AdamW::step(double rate) {
  at::NoGradGuard no_grad;
  for (auto& group : groups_) {
    if (group.parameters.empty()) continue;
    for (auto& steps : group.steps) steps.add_(1);
    at::_fused_adamw_(group.parameters, gradients(group.parameters), group.first, group.second,
                      /*max_exp_avg_sqs=*/{}, group.steps, rate, settings_.beta1, settings_.beta2,
                      group.weight_decay, settings_.epsilon, /*amsgrad=*/false, /*maximize=*/false);
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
    tensors.emplace_back(first_prefix + name, first_[i]);
    tensors.emplace_back(second_prefix + name, second_[i]);
  }
  return tensors;
}

void AdamW::check_state(const data::NamedTensors& parameters, const data::SafetensorsReader& file,
                        const std::string& where) {
  for (const auto& [name, parameter] : parameters) {
    for (const char* prefix : {weight_prefix, first_prefix, second_prefix}) {
      const data::TensorInfo& info = file.info(prefix + name);
      if (info.dtype != at::kFloat || parameter.sizes() != info.shape) {
        throw data::InputError(where + ": tensor " + prefix + name + " is " + shown(info.dtype, info.shape) +
                               ", expected " + shown(at::kFloat, parameter.sizes()) +
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
