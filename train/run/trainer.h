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

/// Metrics of one optimiser step, over all processes.
struct StepMetrics {
  std::vector<HeadMetrics> heads;  // [K], over the whole global batch
  double loss = 0;
  TermValues terms{};  // each term's part of the loss, before its weight
  double rate = 0;
  double gradient_norm = 0;  // before clipping
  int64_t answer_tokens = 0;
  int64_t rows = 0;

  void add(const StepMetrics& other);  // adds those of another micro-batch
};

/// The loss that the settings ask for.
ObjectiveSettings objective_settings(const FitSettings& settings);

/// InputError when there are more processes than micro-batches in a step.
void check_ranks(const FitSettings& settings, infer::Rank rank);

/// The optimisation: data order, frozen target, drafter, AdamW.  It does not know folders, logs or
/// evaluation, so these cannot change a weight.  Several processes share the micro-batches of a step.  Loss
/// and weights do not depend on the number of processes, on the CPU to the bit, because gradients and metrics
/// of single micro-batches are summed in a fixed order (tree_sum).
class Trainer {
 public:
  /// `job` and `ranks` must outlive the trainer.  There must be no more ranks than micro-batches in a step.
  Trainer(const FitJob& job, Communicator& ranks);

  /// Makes step number `step` of the run, from 0.  std::runtime_error when loss or gradient is NaN or
  /// infinite; the weights are then unchanged.
  StepMetrics step(int64_t step);

  int64_t epoch_of(int64_t step) const { return order_.epoch_of(step); }
  AdamW& optimiser() { return optimiser_; }
  const AdamW& optimiser() const { return optimiser_; }
  const FeatureCache& feature_cache() const { return feature_cache_; }
  const Objective& objective() const { return objective_; }

 private:
  StepMetrics forward_backward(std::span<const int64_t> indices, std::span<const double> head_scale,
                               int64_t step);
  double self_feed(int64_t step) const;
  std::vector<int64_t> count_labels(std::span<const int64_t> indices) const;  // [K], in the draft vocabulary
  std::vector<double> head_scale(std::span<const int64_t> labels) const;
  std::string why_not_finite(int64_t step) const;
  StepMetrics skip_unlabelled_step(int64_t step);
  StepMetrics sum_metrics(const std::vector<StepMetrics>& micro_batches);
  at::TensorOptions gradient_options() const;
  void bind_gradients(const at::Tensor& gradient);

  const FitJob& job_;
  Communicator& ranks_;
  Objective objective_;
  DataOrder order_;
  Schedule schedule_;
  FeatureCache feature_cache_;
  AdamW optimiser_;
  std::vector<at::Tensor> parameters_;
  int64_t gradient_size_ = 0;  // elements of all parameters
};

}  // namespace clover::train
