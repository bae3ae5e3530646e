#pragma once

#include <functional>
#include <vector>

#include "train/features/feature_source.h"
#include "train/objective/objective.h"
#include "train/optimiser/adamw.h"
#include "train/optimiser/data_order.h"
#include "train/optimiser/schedule.h"
#include "train/ranks/communicator.h"
#include "train/run/fit_job.h"

namespace clover::train {

/// What one optimiser step did, in all processes together.
struct StepFigures {
  std::vector<HeadFigures> heads;  // [K], over the whole global batch
  double loss = 0;
  double rate = 0;
  double gradient_norm = 0;  // before clipping
  int64_t answer_tokens = 0;
  int64_t rows = 0;

  void add(const StepFigures& other);  // of another micro-batch
};

/// InputError when there are more processes than micro-batches in a step.
void check_ranks(const FitSettings& settings, infer::Rank rank);

/// The optimisation alone: data order, frozen target, drafter, AdamW.  Knows nothing of folders, logs or
/// evaluation, so none of them can change a weight.  Several processes share the micro-batches of each step,
/// and come to the same loss and weights as one would, to the bit on the CPU: gradients and figures are those
/// of single micro-batches, added up in an order that does not depend on who computed them.
class Trainer {
 public:
  /// `ranks`, borrowed, no more than the micro-batches of a step.
  Trainer(const FitJob& job, Communicator& ranks);

  /// Step number `step` of the run, from 0.  std::runtime_error when loss or gradient is no finite number;
  /// the weights are then as before the step.
  StepFigures step(int64_t step);

  int64_t epoch_of(int64_t step) const { return order_.epoch_of(step); }
  AdamW& optimiser() { return optimiser_; }
  const AdamW& optimiser() const { return optimiser_; }
  const FeatureSource& features() const { return features_; }

 private:
  StepFigures micro_batch(std::span<const int64_t> indices, std::span<const double> head_scale);
  std::vector<int64_t> labels_of(std::span<const int64_t> indices) const;  // [K] that the heads can say
  std::vector<double> head_scale(std::span<const int64_t> labels) const;
  std::string why_not_finite(int64_t step) const;
  StepFigures nothing_learned(int64_t step);
  StepFigures sum_figures(const std::vector<StepFigures>& own);
  at::TensorOptions gradient_options() const;
  void use_gradient(const at::Tensor& gradient);

  const FitJob& job_;
  Communicator& ranks_;
  LabelMap label_map_;
  DataOrder order_;
  Schedule schedule_;
  FeatureSource features_;
  AdamW optimiser_;
  std::vector<at::Tensor> parameters_;
  int64_t gradient_size_ = 0;  // elements of all parameters
  at::Tensor weight_;          // [V', D] in the compute dtype
};

}  // namespace clover::train
