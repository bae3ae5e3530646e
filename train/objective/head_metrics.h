#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "data/training/token_store.h"
#include "train/objective/loss_terms.h"
#include "train/objective/token_map.h"

namespace clover::train {

constexpr int64_t top_ranks = 10;  // metrics count labels at ranks 0 .. top_ranks - 1

/// Loss and accuracy of one head.  A label outside the draft vocabulary has no loss and counts as wrong.
struct HeadMetrics {
  double loss_sum = 0;                    // of the rows whose label is in the draft vocabulary
  TermValues terms{};                     // each term's part of it, before its weight
  int64_t labels = 0;                     // supervised labels, also outside the draft vocabulary
  int64_t in_draft_vocab = 0;             // labels in the draft vocabulary
  std::array<int64_t, top_ranks> hits{};  // [k]: labels whose rank is k

  void add(const HeadMetrics& other);
  double mean(double sum) const { return in_draft_vocab ? sum / static_cast<double>(in_draft_vocab) : 0; }
  double mean_loss() const { return mean(loss_sum); }
  /// Top-k accuracy: share of labels among the k best guesses, 1 <= k <= top_ranks.
  double top(int64_t k) const;
};

/// For each head the number of supervised labels in the draft vocabulary, over which its loss is the mean.
/// Taken over the whole global batch it makes loss and weights independent of the micro-batches.
std::vector<int64_t> count_draft_vocab_labels(std::span<const data::TokenStore::Sample> samples,
                                              int64_t heads, const LabelMap& label_map);

/// Whether the sample has a label in the draft vocabulary, and so contributes to the loss.
bool has_draft_vocab_label(const data::TokenStore::Sample& sample, const LabelMap& label_map);

}  // namespace clover::train
