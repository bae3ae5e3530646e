#include "model/drafters/module.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace clover::model {

Module::NamedParameters Module::named_parameters() const {
  NamedParameters result = own_parameters_;
  for (const auto& [name, part] : parts_) {
    for (auto& [part_name, tensor] : part->named_parameters())
      result.emplace_back(name + "." + part_name, tensor);
  }
  return result;
}

std::vector<at::Tensor> Module::parameters() const {
  std::vector<at::Tensor> result;
  for (const auto& [name, tensor] : named_parameters()) result.push_back(tensor);
  return result;
}

std::vector<double> Module::target_rms() const {
  std::vector<double> result = own_target_rms_;
  for (const auto& [name, part] : parts_) std::ranges::copy(part->target_rms(), std::back_inserter(result));
  return result;
}

at::Tensor Module::parameter(const std::string& name) const {
  for (const auto& [candidate, tensor] : named_parameters()) {
    if (candidate == name) return tensor;
  }
  throw std::out_of_range("there is no parameter " + name);
}

void Module::pack(at::ScalarType dtype) {
  for (auto& [name, part] : parts_) part->pack(dtype);
}

void Module::unpack() {
  for (auto& [name, part] : parts_) part->unpack();
}

void Module::to(at::Device device) {
  for (auto& [name, tensor] : own_parameters_) tensor.set_data(tensor.detach().to(device));
  for (auto& [name, part] : parts_) part->to(device);
}

at::Tensor Module::register_parameter(std::string name, at::Tensor initial, double target_rms) {
  initial.set_requires_grad(true);
  own_parameters_.emplace_back(std::move(name), initial);
  own_target_rms_.push_back(target_rms);
  return initial;
}

}  // namespace clover::model
