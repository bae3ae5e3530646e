#include "train/objective/objective.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <algorithm>

#include "kernels/gpu/gpu.h"
#include "train/objective/cross_entropy.h"

namespace clover::train {
namespace {

/// The rows of one head whose label is in the draft vocabulary, and the labels' indices there.
struct VocabularyLabels {
  at::Tensor rows;    // i64 [L']
  at::Tensor labels;  // i64 [L']
};

VocabularyLabels labels_in_draft_vocab(const HeadLabels& work, const LabelMap& label_map) {
  const int64_t* rows = work.scored_rows.const_data_ptr<int64_t>();
  const int64_t* labels = work.labels.const_data_ptr<int64_t>();
  std::vector<int64_t> kept_rows, kept_labels;
  for (int64_t i = 0; i < work.scored_rows.numel(); ++i) {
    const int64_t index = label_map.index_of(labels[i]);
    if (index < 0) continue;
    kept_rows.push_back(rows[i]);
    kept_labels.push_back(index);
  }
  const int64_t count = static_cast<int64_t>(kept_rows.size());
  VocabularyLabels result{at::empty({count}, at::kLong), at::empty({count}, at::kLong)};
  std::copy(kept_rows.begin(), kept_rows.end(), result.rows.data_ptr<int64_t>());
  std::copy(kept_labels.begin(), kept_labels.end(), result.labels.data_ptr<int64_t>());
  return result;
}

void count_ranks(const at::Tensor& ranks, HeadMetrics& metrics) {
  const int64_t* rank = ranks.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < ranks.numel(); ++i) {
    if (rank[i] < top_ranks) ++metrics.hits[rank[i]];
  }
}

}  // namespace

void HeadMetrics::add(const HeadMetrics& other) {
  loss_sum += other.loss_sum;
  labels += other.labels;
  in_draft_vocab += other.in_draft_vocab;
  for (int64_t k = 0; k < top_ranks; ++k) hits[k] += other.hits[k];
}

double HeadMetrics::top(int64_t k) const {
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

at::Tensor loss_weight(const model::Drafter& drafter, at::ScalarType dtype) {
  const model::OutputHead& head = drafter.head(0);
  const at::Tensor& dense = head.dense;
  TORCH_CHECK(dense.defined(), "the drafter was made without what training needs");
  return dense.detach().to(drafter.device(), dtype).contiguous();
}

at::Tensor teacher_forced_loss(model::Drafter& drafter, const model::Features& features,
                               const PackedBatch& batch, const LabelMap& label_map, const at::Tensor& weight,
                               std::span<const double> head_scale, std::vector<HeadMetrics>& metrics) {
  at::Tensor loss;
  model::DraftState state =
      drafter.prime(features, batch.next_ids, batch.segments, batch.labelled_rows, nullptr);
  for (size_t i = 0; i < batch.heads.size(); ++i) {
    const HeadLabels& work = batch.heads[i];
    if (i > 0) state = drafter.extend(state, work.parents, work.ids, nullptr);
    metrics[i].labels += work.labels.numel();
    const VocabularyLabels kept = labels_in_draft_vocab(work, label_map);
    if (kept.rows.numel() == 0) continue;
    const bool all = kept.rows.numel() == state.hidden.size(0);
    const model::DraftState rows{
        all ? state.hidden
            : state.hidden.index_select(0, kernels::to_device(kept.rows, state.hidden.device())),
        state.depth};
    const CrossEntropy entropy = chunked_cross_entropy(drafter.output(rows), weight, kept.labels);
    metrics[i].loss_sum += entropy.sum.item<double>();
    metrics[i].in_draft_vocab += kept.rows.numel();
    count_ranks(entropy.ranks, metrics[i]);
    const at::Tensor part = entropy.sum * head_scale[i];
    loss = loss.defined() ? loss + part : part;
  }
  return loss;
}

}  // namespace clover::train
