#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace clover::model {

/// Named trainable tensors: a module's own and those of its submodules, as torch.nn.Module has them in
/// Python. LibTorch's torch::nn::Module would add seconds to the compilation of every file that includes it.
class Module {
 public:
  using NamedParameters = std::vector<std::pair<std::string, at::Tensor>>;

  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// "weight", "head0.linear.weight", ..: a module's own first, then those of its submodules, in the order of
  /// registration.
  NamedParameters named_parameters() const;
  std::vector<at::Tensor> parameters() const;  // in the same order
  /// The parameter of that name; std::out_of_range when there is none.
  at::Tensor parameter(const std::string& name) const;

  /// Packs the present weights in `dtype` for calls that run frozen, and drops what is packed: of all
  /// submodules, unless a module packs its own.
  virtual void pack(at::ScalarType dtype);
  virtual void unpack();

  /// Moves all parameters; tensors that refer to them stay valid and refer to the moved ones.
  void to(at::Device device);

 protected:
  Module() = default;
  /// Registers `initial`, makes it require gradients and returns it.
  at::Tensor register_parameter(std::string name, at::Tensor initial);
  template <class Part>
  std::shared_ptr<Part> register_module(std::string name, std::shared_ptr<Part> part) {
    parts_.emplace_back(std::move(name), part);
    return part;
  }

 private:
  NamedParameters own_;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> parts_;
};

}  // namespace clover::model
