#include "model/drafters/module.h"

#include <stdexcept>

namespace clover::model {

Module::NamedParameters Module::named_parameters() const {
  NamedParameters all = own_;
  for (const auto& [name, part] : parts_) {
    for (auto& [inner, tensor] : part->named_parameters()) all.emplace_back(name + "." + inner, tensor);
  }
  return all;
}

std::vector<at::Tensor> Module::parameters() const {
  std::vector<at::Tensor> all;
  for (const auto& [name, tensor] : named_parameters()) all.push_back(tensor);
  return all;
}

at::Tensor Module::parameter(const std::string& name) const {
  for (const auto& [own, tensor] : named_parameters()) {
    if (own == name) return tensor;
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
  for (auto& [name, tensor] : own_) tensor.set_data(tensor.detach().to(device));
  for (auto& [name, part] : parts_) part->to(device);
}

at::Tensor Module::register_parameter(std::string name, at::Tensor initial) {
  initial.set_requires_grad(true);
  own_.emplace_back(std::move(name), initial);
  return initial;
}

}  // namespace clover::model
