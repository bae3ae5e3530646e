#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "model/drafters/drafter.h"
#include "train/objective/teacher_forcing.h"
#include "train/objective/token_map.h"

namespace clover::train {

constexpr int64_t top_ranks = 10;

/// How one head did.  A label outside the drafter's vocabulary is no part of the loss and counts as wrong.
struct HeadFigures {
  double loss_sum = 0;
  int64_t labels = 0;                     // supervised labels
  int64_t sayable = 0;                    // of which the drafter's vocabulary holds
  std::array<int64_t, top_ranks> hits{};  // [k]: labels of rank k exactly

  void add(const HeadFigures& other);
  double mean_loss() const { return sayable ? loss_sum / static_cast<double>(sayable) : 0; }
  double top(int64_t k) const;  // share of labels among the k best guesses, 1 <= k <= top_ranks
};

/// How many labels the loss of each head is the mean over: those the drafter's vocabulary holds.  Summed over
/// the whole global batch it makes the loss, and so the weights, independent of how the batch is cut into
/// micro-batches.
std::vector<int64_t> sayable_labels(std::span<const data::TokenStore::Sample> samples, int64_t heads,
                                    const LabelMap& label_map);

/// Whether the loss has a term of this sample: one of the labels that those count.
bool has_sayable_label(const data::TokenStore::Sample& sample, const LabelMap& label_map);

/// The vocabulary matrix in the dtype the loss multiplies in.
at::Tensor loss_weight(const model::Drafter& drafter, at::ScalarType dtype);

/// Teacher-forced loss of a packed batch: sum over heads of head_scale[i] * (sum of cross-entropies of head
/// i), a differentiable fp32 scalar (undefined when no label can be said).  Adds to `figures` ([K]).
at::Tensor teacher_forced_loss(model::Drafter& drafter, const model::Features& features,
                               const PackedBatch& batch, const LabelMap& label_map, const at::Tensor& weight,
                               std::span<const double> head_scale, std::vector<HeadFigures>& figures);

}  // namespace clover::train
