#pragma once

#include <functional>
#include <vector>

#include "train/features/feature_cache.h"
#include "train/objective/objective.h"
#include "train/optimiser/adamw.h"
#include "train/optimiser/data_order.h"
#include "train/optimiser/schedule.h"
#include "train/ranks/communicator.h"
#include "train/run/fit_job.h"

namespace clover::train {

/// Metrics of one optimiser step, summed over micro-batches and processes.
struct StepMetrics {
  std::vector<HeadMetrics> heads;  // [K]
  double loss = 0;
  TermValues terms{};  // the loss of each term alone, without the term's weight
  double learning_rate = 0;
  double gradient_norm = 0;  // before clipping
  int64_t answer_tokens = 0;
  int64_t rows = 0;  // of the packed batches

  void add(const StepMetrics& other);  // adds the sums of another micro-batch
};

/// The loss that the settings ask for.
ObjectiveSettings objective_settings(const FitSettings& settings);

/// InputError when there are more processes than micro-batches in a step.
void check_ranks(const FitSettings& settings, infer::Rank rank);

/// The optimisation: data order, frozen target, drafter, AdamW.  It does not know folders, logs or
/// evaluation, so these cannot change a weight.  Several processes share the micro-batches of a step.  Their
/// number changes neither loss nor weights, on the CPU not by a bit, because the gradients of the
/// micro-batches are added up in a fixed order (tree_sum).
class Trainer {
 public:
  /// `job` and `ranks` must outlive the trainer.  `check_ranks` must have passed.
  Trainer(const FitJob& job, Communicator& ranks);

  /// Makes the run's step number `step`, from 0.  std::runtime_error when loss or gradient is NaN or
  /// infinite; the weights are then unchanged.
  StepMetrics step(int64_t step);

  int64_t epoch_of(int64_t step) const { return data_order_.epoch_of(step); }
  AdamW& optimiser() { return optimiser_; }
  const AdamW& optimiser() const { return optimiser_; }
  const FeatureCache& feature_cache() const { return feature_cache_; }
  const Objective& objective() const { return objective_; }

 private:
  /// The loss of a micro-batch, of the training samples `indices`; adds to the gradients.
  StepMetrics forward_backward(std::span<const int64_t> indices, std::span<const double> head_scale,
                               int64_t step);
  double self_feed(int64_t step) const;
  /// [K]: for each head how many labels of the samples `indices` are in the draft vocabulary.
  std::vector<int64_t> count_labels(std::span<const int64_t> indices) const;
  std::vector<double> head_scale(std::span<const int64_t> labels) const;
  std::string why_not_finite(int64_t step) const;
  StepMetrics skip_unlabelled_step(int64_t step);
  StepMetrics sum_metrics(const std::vector<StepMetrics>& micro_batches);
  at::TensorOptions gradient_options() const;
  void bind_gradients(const at::Tensor& gradient);

  const FitJob& job_;
  Communicator& ranks_;
  Objective objective_;
  DataOrder data_order_;
  Schedule schedule_;
  FeatureCache feature_cache_;
  AdamW optimiser_;
  std::vector<at::Tensor> parameters_;  // of the drafter
  int64_t gradient_size_ = 0;           // elements of all parameters
};

}  // namespace clover::train
