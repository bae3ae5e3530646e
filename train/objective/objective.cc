#include "train/objective/objective.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <algorithm>

#include "kernels/gpu/gpu.h"
#include "train/objective/cross_entropy.h"

namespace clover::train {
namespace {

/// The scored rows of one head whose label the drafter can say, and the labels' indices in its vocabulary.
struct Sayable {
  at::Tensor rows;    // i64 [L']
  at::Tensor labels;  // i64 [L']
};

Sayable sayable(const HeadWork& work, const LabelMap& label_map) {
  const int64_t* rows = work.scored.const_data_ptr<int64_t>();
  const int64_t* labels = work.labels.const_data_ptr<int64_t>();
  std::vector<int64_t> kept_rows, kept_labels;
  for (int64_t i = 0; i < work.scored.numel(); ++i) {
    const int64_t index = label_map.index_of(labels[i]);
    if (index < 0) continue;
    kept_rows.push_back(rows[i]);
    kept_labels.push_back(index);
  }
  const int64_t count = static_cast<int64_t>(kept_rows.size());
  Sayable result{at::empty({count}, at::kLong), at::empty({count}, at::kLong)};
  std::copy(kept_rows.begin(), kept_rows.end(), result.rows.data_ptr<int64_t>());
  std::copy(kept_labels.begin(), kept_labels.end(), result.labels.data_ptr<int64_t>());
  return result;
}

void count_ranks(const at::Tensor& ranks, HeadFigures& figures) {
  const int64_t* rank = ranks.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < ranks.numel(); ++i) {
    if (rank[i] < top_ranks) ++figures.hits[rank[i]];
  }
}

}  // namespace

void HeadFigures::add(const HeadFigures& other) {
  loss_sum += other.loss_sum;
  labels += other.labels;
  sayable += other.sayable;
  for (int64_t k = 0; k < top_ranks; ++k) hits[k] += other.hits[k];
}

double HeadFigures::top(int64_t k) const {
  int64_t sum = 0;
  for (int64_t rank = 0; rank < k; ++rank) sum += hits[rank];
  return labels ? static_cast<double>(sum) / static_cast<double>(labels) : 0;
}

std::vector<int64_t> sayable_labels(std::span<const data::TokenStore::Sample> samples, int64_t heads,
                                    const LabelMap& label_map) {
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

// Head i's labels at row t >= 0 are the tokens t + 2 + i.
bool has_sayable_label(const data::TokenStore::Sample& sample, const LabelMap& label_map) {
  for (size_t t = 2; t < sample.ids.size(); ++t)
    if (sample.supervised[t] && label_map.index_of(sample.ids[t]) >= 0) return true;
  return false;
}

at::Tensor loss_weight(const model::Drafter& drafter, at::ScalarType dtype) {
  const model::OutputHead& head = drafter.head(0);
  const at::Tensor& dense = head.dense;
  TORCH_CHECK(dense.defined(), "the drafter was made without what training needs");
  return dense.detach().to(head.packed.device(), dtype).contiguous();
}

at::Tensor teacher_forced_loss(model::Drafter& drafter, const model::Features& features,
                               const PackedBatch& batch, const LabelMap& label_map, const at::Tensor& weight,
                               std::span<const double> head_scale, std::vector<HeadFigures>& figures) {
  at::Tensor loss;
  model::DraftState state = drafter.prime(features, batch.next_ids, batch.segments, batch.frontier, nullptr);
  for (size_t i = 0; i < batch.heads.size(); ++i) {
    const HeadWork& work = batch.heads[i];
    if (i > 0) state = drafter.extend(state, work.parents, work.ids);
    figures[i].labels += work.labels.numel();
    const Sayable said = sayable(work, label_map);
    if (said.rows.numel() == 0) continue;
    const bool all = said.rows.numel() == state.hidden.size(0);
    const model::DraftState rows{
        all ? state.hidden
            : state.hidden.index_select(0, kernels::to_device(said.rows, state.hidden.device())),
        state.depth};
    const CrossEntropy entropy = chunked_cross_entropy(drafter.output(rows), weight, said.labels);
    figures[i].loss_sum += entropy.sum.item<double>();
    figures[i].sayable += said.rows.numel();
    count_ranks(entropy.ranks, figures[i]);
    const at::Tensor part = entropy.sum * head_scale[i];
    loss = loss.defined() ? loss + part : part;
  }
  return loss;
}

}  // namespace clover::train
