#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "data/files/safetensors.h"

namespace clover::train {

struct AdamWSettings {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;  // of matrices only: vectors (norms, biases) never decay
};

/// AdamW over fp32 parameters with its own fp32 moments, kept under the parameters' names.
class AdamW {
 public:
  AdamW(data::NamedTensors parameters, AdamWSettings settings);

  void zero_gradients();

  /// Scales all gradients so that their global 2-norm is at most `limit` (0: no limit); returns the norm
  /// before.
  double clip_gradients(double limit);

  /// One update; parameters without a gradient count as having a zero one.
  void step(double rate);

  /// Counts an update without making one.
  void skip_step();

  /// Parameters and moments: "weight.<name>", "exp_avg.<name>", "exp_avg_sq.<name>".
  data::NamedTensors state() const;

  /// InputError unless `file` holds such a state of these parameters: every tensor, no other, its shape,
  /// fp32.
  static void check_state(const data::NamedTensors& parameters, const data::SafetensorsReader& file,
                          const std::string& where);

  /// Back to a saved state after `steps` updates; InputError as `check_state`, nothing being changed.
  void restore(const data::SafetensorsReader& file, const std::string& where, int64_t steps);

 private:
  struct Group {
    double weight_decay;
    std::vector<at::Tensor> parameters, first, second, steps;
  };
  std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& parameters) const;

  data::NamedTensors parameters_;
  AdamWSettings settings_;
  std::vector<at::Tensor> first_, second_;  // moments, in the order of parameters_
  std::vector<Group> groups_;               // the same tensors, matrices and vectors apart
};

}  // namespace clover::train
