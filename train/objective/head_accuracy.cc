#include "train/objective/head_accuracy.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "kernels/gpu/gpu.h"
#include "train/objective/objective.h"

namespace clover::train {

std::vector<ScoredLabel> score_labels(model::Drafter& drafter, const model::Features& features,
                                      const PackedBatch& batch, const LabelMap& label_map,
                                      const LossHeads& heads, const Feed& feed) {
  const at::NoGradGuard no_grad;
  std::vector<ScoredLabel> scored;
  rollout(drafter, features, batch, feed,
          [&](int64_t depth, const model::DraftState& state, const HeadLabels& labels) {
            const int64_t first_label = std::ssize(scored);  // of this head
            for (int64_t j = 0; j < labels.scored_rows.numel(); ++j) {
              const int64_t row = labels.scored_rows.const_data_ptr<int64_t>()[j];
              scored.push_back({depth, labels.sample.const_data_ptr<int64_t>()[row],
                                labels.t.const_data_ptr<int64_t>()[row] + 2 + depth, top_ranks});
            }
            const VocabularyLabels in_vocab = labels_in_draft_vocab(labels, label_map);
            if (in_vocab.rows.numel() == 0) return;
            const at::Tensor output =
                drafter.head_input(state.rows(kernels::to_device(in_vocab.rows, state.hidden.device())));
            const at::Tensor ranks =
                chunked_vocabulary_loss(output, heads.at(depth), {in_vocab.labels}, LossTerms()).ranks;
            for (int64_t j = 0; j < in_vocab.label_indices.numel(); ++j)
              scored[first_label + in_vocab.label_indices.const_data_ptr<int64_t>()[j]].rank =
                  std::min(ranks.const_data_ptr<int64_t>()[j], top_ranks);
          });
  return scored;
}

}  // namespace clover::train
