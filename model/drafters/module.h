#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace clover::model {

/// Holds named trainable tensors: its own parameters and those of its submodules, like torch.nn.Module in
/// Python.  LibTorch's torch::nn::Module would add seconds to the compilation of every file that includes it.
class Module {
 public:
  using NamedParameters = std::vector<std::pair<std::string, at::Tensor>>;

  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Names such as "weight" or "head0.linear.weight", and the tensors: first the module's own, then those of
  /// its submodules, in the order of registration.
  NamedParameters named_parameters() const;
  std::vector<at::Tensor> parameters() const;  // in the same order
  /// In the same order, of each matrix that begins as one of the target's or stands in its place: the root
  /// mean square of the target's; of other parameters 0.
  std::vector<double> target_rms() const;
  /// The parameter of that name; std::out_of_range when there is none.
  at::Tensor parameter(const std::string& name) const;

  /// Packs the weights in `dtype` for inference.  Until `unpack`, the module is frozen: its calls use the
  /// packed weights.  Both call the same function of all submodules; modules that pack several submodules as
  /// one matrix override them.
  virtual void pack(at::ScalarType dtype);
  virtual void unpack();

  /// Moves all parameters in place: other at::Tensor handles to them see the moved ones.
  void to(at::Device device);

 protected:
  Module() = default;
  /// Registers `initial`, makes it require gradients and returns it.
  /// target_rms: as in target_rms().
  at::Tensor register_parameter(std::string name, at::Tensor initial, double target_rms = 0);
  template <class Part>
  std::shared_ptr<Part> register_module(std::string name, std::shared_ptr<Part> part) {
    parts_.emplace_back(std::move(name), part);
    return part;
  }

 private:
  NamedParameters own_parameters_;      // without those of submodules
  std::vector<double> own_target_rms_;  // target_rms() of them
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> parts_;
};

}  // namespace clover::model
