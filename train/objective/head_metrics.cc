#include "train/objective/head_metrics.h"

namespace clover::train {

void HeadMetrics::add(const HeadMetrics& other) {
  loss_sum += other.loss_sum;
  for (size_t k = 0; k < loss_term_count; ++k) terms[k] += other.terms[k];
  labels += other.labels;
  in_draft_vocab += other.in_draft_vocab;
  for (int64_t k = 0; k < top_ranks; ++k) hits[k] += other.hits[k];
}

double HeadMetrics::top_k_accuracy(int64_t k) const {
  int64_t sum = 0;
  for (int64_t rank = 0; rank < k; ++rank) sum += hits[rank];
  return labels ? static_cast<double>(sum) / static_cast<double>(labels) : 0;
}

std::vector<int64_t> count_draft_vocab_labels(std::span<const data::TokenStore::Sample> samples,
                                              int64_t heads, const LabelMap& label_map) {
  std::vector<int64_t> count(heads, 0);
  for (const auto& sample : samples) {
    for (int64_t i = 0; i < heads; ++i) {
      for (size_t label = static_cast<size_t>(2 + i); label < sample.ids.size(); ++label) {
        count[i] += sample.supervised[label] && label_map.index_of(sample.ids[label]) >= 0;
      }
    }
  }
  return count;
}

// The label of head i at row t >= 0 is token t + 2 + i, so tokens 0 and 1 are never labels.
bool has_draft_vocab_label(const data::TokenStore::Sample& sample, const LabelMap& label_map) {
  for (size_t t = 2; t < sample.ids.size(); ++t)
    if (sample.supervised[t] && label_map.index_of(sample.ids[t]) >= 0) return true;
  return false;
}

}  // namespace clover::train
