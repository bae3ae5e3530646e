#include "train/objective/head_accuracy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "kernels/gpu/gpu.h"
#include "kernels/vocabulary/top_k.h"
#include "train/objective/cross_entropy.h"

namespace clover::train {
namespace {

constexpr int64_t chunk = 256;  // logits exist for so many rows at a time

/// For each row its best guess, a token id, and the rank of its label if the label is not -1.
struct Guesses {
  at::Tensor best;   // i64 [F]
  at::Tensor ranks;  // i64 [F]
};

Guesses guess(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
              const at::Tensor& token_map) {
  Guesses guesses{at::empty({hidden.size(0)}, at::kLong), at::empty({hidden.size(0)}, at::kLong)};
  for (int64_t begin = 0; begin < hidden.size(0); begin += chunk) {
    const int64_t count = std::min(chunk, hidden.size(0) - begin);
    const at::Tensor logits = at::mm(hidden.narrow(0, begin, count), weight.t());
    at::Tensor best = kernels::arg_max(logits).clamp_min(0);  // if logits are NaN, the first token
    if (token_map.defined()) best = token_map.index_select(0, best);
    guesses.best.narrow(0, begin, count).copy_(best);
    const at::Tensor wanted = labels.narrow(0, begin, count).clamp_min(0);
    guesses.ranks.narrow(0, begin, count).copy_(label_ranks(logits, wanted));
  }
  return guesses;
}

}  // namespace

std::vector<ScoredLabel> score_labels(model::Drafter& drafter, const model::Features& features,
                                      const PackedBatch& batch, const LabelMap& label_map,
                                      const at::Tensor& weight, Feed feed) {
  const at::NoGradGuard no_grad;
  std::vector<ScoredLabel> scored;
  at::Tensor best;
  model::DraftState state =
      drafter.prime(features, batch.next_ids, batch.segments, batch.labelled_rows, nullptr);
  for (size_t i = 0; i < batch.heads.size(); ++i) {
    const HeadLabels& work = batch.heads[i];
    if (i > 0) {
      state = drafter.extend(
          state, work.parents,
          feed == Feed::truth ? work.ids
                              : kernels::to_device(best, state.hidden.device()).index_select(0, work.parents),
          nullptr);
    }
    at::Tensor labels = at::zeros({state.hidden.size(0)}, at::kLong);
    const int64_t* row = work.scored_rows.const_data_ptr<int64_t>();
    const int64_t* label = work.labels.const_data_ptr<int64_t>();
    for (int64_t j = 0; j < work.scored_rows.numel(); ++j)
      labels.data_ptr<int64_t>()[row[j]] = label_map.index_of(label[j]);
    const Guesses guesses = guess(drafter.output(state), weight, labels, drafter.head(0).token_map);
    best = guesses.best;
    for (int64_t j = 0; j < work.scored_rows.numel(); ++j) {
      const bool in_draft_vocab = label_map.index_of(label[j]) >= 0;
      const int64_t rank = in_draft_vocab ? guesses.ranks.const_data_ptr<int64_t>()[row[j]] : top_ranks;
      scored.push_back({static_cast<int64_t>(i), work.sample.const_data_ptr<int64_t>()[j],
                        work.position.const_data_ptr<int64_t>()[j], std::min(rank, top_ranks)});
    }
  }
  return scored;
}

}  // namespace clover::train
