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
  double weight_decay = 0;  // applied to matrices only, not to vectors (norms, biases)
};

/// AdamW (torch.optim.AdamW) over named fp32 parameters, with fp32 moments.
class AdamW {
 public:
  /// rate_scales: factors of the learning rate, one for each parameter; none: 1.
  AdamW(data::NamedTensors parameters, AdamWSettings settings, const std::vector<double>& rate_scales = {});

  void zero_gradients();

  /// Scales all gradients so that their global 2-norm is at most `max_norm` (0: no limit).  Returns the norm
  /// before the scaling.
  double clip_gradients(double max_norm);

  /// One update with learning rate `rate`, times each parameter's scale.  An undefined gradient counts as 0.
  void step(double rate);

  /// Increases the step count, on which the bias correction depends.  Weights and moments do not change.
  void skip_step();

  /// Parameters and moments: "weight.<name>", "exp_avg.<name>", "exp_avg_sq.<name>".
  data::NamedTensors state() const;

  /// InputError unless `file` holds the state of exactly these parameters: names, shapes, fp32.  `where`: the
  /// file's name for the message.
  static void check_state(const data::NamedTensors& parameters, const data::SafetensorsReader& file,
                          const std::string& where);

  /// Restores a state that was saved after `steps` steps.  Throws as `check_state`, before anything changes.
  void restore(const data::SafetensorsReader& file, const std::string& where, int64_t steps);

 private:
  /// Parameters with the same weight decay and scale of the rate, and their moments; entry i of each list is
  /// for parameter i.
  struct Group {
    double weight_decay, rate_scale;
    std::vector<at::Tensor> parameters, exp_avgs, exp_avg_sqs;
    std::vector<at::Tensor> steps;  // fp32 scalars: the step counts
  };
  Group& group_of(double weight_decay, double rate_scale);
  std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& parameters) const;

  data::NamedTensors parameters_;
  AdamWSettings settings_;
  std::vector<at::Tensor> exp_avgs_, exp_avg_sqs_;  // first and second moments, in the order of parameters_
  std::vector<Group> groups_;                       // the same tensors
};

}  // namespace clover::train
