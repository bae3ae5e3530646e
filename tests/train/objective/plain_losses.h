#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "model/drafters/drafter.h"
#include "train/objective/loss_terms.h"
#include "train/objective/packed_batch.h"

namespace clover::train {

/// The losses of the L scored rows of one depth, not summed, since published trainers have different masks
/// and denominators.  Medusa, Hydra and ReDrafter mask a row by its label, as this project does.  EAGLE and
/// Clover-2 mask it by the token two positions before the label: supervised[j] = loss_mask[j - 2], and their
/// sample has one more token at its end.
struct DepthLosses {
  at::Tensor sample, t;  // i64 [L]: the row's sample in the batch, and the position of its features
  at::Tensor label;      // i64 [L]: index in the draft vocabulary, -1 outside
  at::Tensor values;     // fp64 [L], differentiable

  /// Those of `rows` whose label is in the draft vocabulary.
  at::Tensor in_vocabulary(const at::Tensor& rows) const {
    return rows.index_select(0, at::nonzero(label >= 0).squeeze(1));
  }
};

/// One term of every scored row, teacher-forced, by its definition and without chunks.  `features` hold
/// post_norm, and the batch teacher rows, for the terms that read the target; lm_head fp32 [V, H].
inline std::vector<DepthLosses> plain_losses(model::Drafter& drafter, const model::Features& features,
                                             const PackedBatch& batch, const at::Tensor& lm_head,
                                             LossTerm term) {
  std::vector<DepthLosses> depths;
  model::DraftState state =
      drafter.prime(features, batch.next_ids, batch.segments, batch.labelled_rows, nullptr);
  for (size_t depth = 0; depth < batch.heads.size(); ++depth) {
    const HeadLabels& labels = batch.heads[depth];
    if (depth > 0) state = drafter.extend(state, labels.parents, labels.ids, nullptr);
    const model::OutputHead& head = drafter.head(static_cast<int64_t>(depth));
    const at::Tensor map = head.token_map.defined() ? head.token_map : at::arange(lm_head.size(0), at::kLong);
    const at::Tensor output = drafter.head_input(state).index_select(0, labels.scored_rows).to(at::kDouble);
    at::Tensor logits = output.matmul(head.dense.to(at::kDouble).t());
    if (head.dense_bias.defined()) logits = logits + head.dense_bias;
    const at::Tensor log_q = logits.log_softmax(1);
    at::Tensor h, p;
    if (term != LossTerm::cross_entropy) {
      h = features.post_norm.index_select(0, labels.teacher_rows).to(at::kDouble);
      p = h.matmul(lm_head.index_select(0, map).to(at::kDouble).t()).softmax(1);
    }
    // The index of each label in the vocabulary, by comparing with all of it.
    const at::Tensor equal = labels.labels.unsqueeze(1) == map.unsqueeze(0);
    const at::Tensor label = at::where(equal.any(1), equal.to(at::kLong).argmax(1), -1);
    at::Tensor values;
    switch (term) {
      case LossTerm::cross_entropy:
        values = -log_q.gather(1, label.clamp_min(0).unsqueeze(1)).squeeze(1);
        break;
      case LossTerm::soft_labels:
        values = -(p * log_q).sum(1);
        break;
      case LossTerm::total_variation:
        values = 0.5 * (p - log_q.exp()).abs().sum(1);
        break;
      case LossTerm::lk:
        values = -(1 - 0.5 * (p - log_q.exp()).abs().sum(1)).log();
        break;
      case LossTerm::smooth_l1: {
        const at::Tensor distance = (output - h).abs();
        values = at::where(distance < 1, 0.5 * distance.square(), distance - 0.5).mean(1);
        break;
      }
    }
    depths.push_back({labels.sample.index_select(0, labels.scored_rows),
                      labels.t.index_select(0, labels.scored_rows), label, values});
  }
  return depths;
}

}  // namespace clover::train
