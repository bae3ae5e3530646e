#pragma once

#include <functional>
#include <vector>

#include "train/adamw.h"
#include "train/data_order.h"
#include "train/feature_source.h"
#include "train/fit_job.h"
#include "train/objective.h"
#include "train/schedule.h"

namespace clover::train {

/// What one optimiser step did.
struct StepFigures {
  std::vector<HeadFigures> heads;  // [K], over the whole global batch
  double loss = 0;
  double rate = 0;
  double gradient_norm = 0;  // before clipping
  int64_t answer_tokens = 0;
  int64_t rows = 0;
};

/// The optimisation alone: data order, frozen target, drafter, AdamW.  Knows nothing of folders, logs or
/// evaluation, so none of them can change a weight.
class Trainer {
 public:
  explicit Trainer(const FitJob& job);

  /// Step number `step` of the run, from 0.  std::runtime_error when loss or gradient is no finite number;
  /// the weights are then as before the step.
  StepFigures step(int64_t step);

  int64_t epoch_of(int64_t step) const { return order_.epoch_of(step); }
  AdamW& optimiser() { return optimiser_; }
  const AdamW& optimiser() const { return optimiser_; }
  const FeatureSource& features() const { return features_; }

 private:
  void micro_batch(std::span<const int64_t> indices, std::span<const double> head_scale,
                   StepFigures& figures);

  const FitJob& job_;
  LabelMap label_map_;
  DataOrder order_;
  Schedule schedule_;
  FeatureSource features_;
  AdamW optimiser_;
  at::Tensor weight_;  // [V', D] in the compute dtype
};

}  // namespace clover::train
