#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "data/training/token_store.h"
#include "train/objective/loss_terms.h"
#include "train/objective/token_map.h"

namespace clover::train {

/// The rank of a label is the number of tokens that the head prefers to it, 0 for the best guess.  Metrics
/// count the labels at ranks 0 .. top_ranks - 1.
constexpr int64_t top_ranks = 10;

/// Loss and accuracy of one head, summed over rows.  A label outside the draft vocabulary has no loss and
/// counts as wrong.
struct HeadMetrics {
  double loss_sum = 0;                    // weighted terms of the rows whose label is in the draft vocabulary
  TermValues terms{};                     // of the same rows: the sum of each term without its weight
  int64_t labels = 0;                     // supervised labels, also outside the draft vocabulary
  int64_t in_draft_vocab = 0;             // labels in the draft vocabulary
  std::array<int64_t, top_ranks> hits{};  // [k]: labels whose rank is k

  void add(const HeadMetrics& other);
  /// A sum over rows, such as terms[k], divided by the number of rows that have a loss.
  double per_row(double sum) const { return in_draft_vocab ? sum / static_cast<double>(in_draft_vocab) : 0; }
  double mean_loss() const { return per_row(loss_sum); }
  /// The share of labels among the k best guesses, 1 <= k <= top_ranks.
  double top_k_accuracy(int64_t k) const;
};

/// For each of `heads` heads its number of supervised labels in the draft vocabulary.  The loss of a head is
/// divided by its number for the whole global batch, so micro-batches do not change loss and weights.
std::vector<int64_t> count_draft_vocab_labels(std::span<const data::TokenStore::Sample> samples,
                                              int64_t heads, const LabelMap& label_map);

/// Whether the sample has a label in the draft vocabulary, and so contributes to the loss.
bool has_draft_vocab_label(const data::TokenStore::Sample& sample, const LabelMap& label_map);

}  // namespace clover::train
