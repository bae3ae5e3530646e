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

constexpr int64_t top_ranks = 10;  // metrics count labels at ranks 0 .. top_ranks - 1

/// Loss and accuracy of one head.  A label outside the draft vocabulary has no loss and counts as wrong.
struct HeadMetrics {
  double loss_sum = 0;
  int64_t labels = 0;                     // supervised labels, also outside the draft vocabulary
  int64_t in_draft_vocab = 0;             // labels in the draft vocabulary
  std::array<int64_t, top_ranks> hits{};  // [k]: labels whose rank is k

  void add(const HeadMetrics& other);
  double mean_loss() const { return in_draft_vocab ? loss_sum / static_cast<double>(in_draft_vocab) : 0; }
  double top(
      int64_t k) const;  // top-k accuracy: share of labels among the k best guesses, 1 <= k <= top_ranks
};

/// For each head the number of supervised labels in the draft vocabulary, over which its loss is the mean.
/// Taken over the whole global batch it makes loss and weights independent of the micro-batches.
std::vector<int64_t> count_draft_vocab_labels(std::span<const data::TokenStore::Sample> samples,
                                              int64_t heads, const LabelMap& label_map);

/// Whether the sample has a label in the draft vocabulary, and so contributes to the loss.
bool has_draft_vocab_label(const data::TokenStore::Sample& sample, const LabelMap& label_map);

/// The LM head of the draft vocabulary, [V', D] in `dtype`, for chunked_cross_entropy.
at::Tensor loss_weight(const model::Drafter& drafter, at::ScalarType dtype);

/// Teacher-forced loss of a packed batch, a differentiable fp32 scalar: the sum over heads i of head_scale[i]
/// times the sum of the cross-entropies of head i (cross_entropy.h).  Undefined when no label is in the draft
/// vocabulary.  Adds to `metrics` [K].
at::Tensor teacher_forced_loss(model::Drafter& drafter, const model::Features& features,
                               const PackedBatch& batch, const LabelMap& label_map, const at::Tensor& weight,
                               std::span<const double> head_scale, std::vector<HeadMetrics>& metrics);

}  // namespace clover::train
