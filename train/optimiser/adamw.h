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
  double weight_decay = 0;  // of matrices only, not of vectors (norms, biases)
};

/// AdamW (torch.optim.AdamW) over named fp32 parameters, with fp32 moments.
class AdamW {
 public:
  AdamW(data::NamedTensors parameters, AdamWSettings settings);

  void zero_gradients();

  /// Scales all gradients so that their global 2-norm is at most `limit` (0: no limit).  Returns the norm
  /// before that.
  double clip_gradients(double limit);

  /// One update with learning rate `rate`.  A parameter without a gradient has a gradient of 0.
  void step(double rate);

  /// Counts a step, without changing weights or moments.
  void skip_step();

  /// Parameters and moments: "weight.<name>", "exp_avg.<name>", "exp_avg_sq.<name>".
  data::NamedTensors state() const;

  /// InputError unless `file` holds the state of exactly these parameters: names, shapes, fp32.
  static void check_state(const data::NamedTensors& parameters, const data::SafetensorsReader& file,
                          const std::string& where);

  /// Restores a state saved after `steps` updates.  On an InputError, as of `check_state`, nothing is
  /// changed.
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
  std::vector<Group> groups_;               // the same tensors, one group of matrices and one of vectors
};

}  // namespace clover::train
