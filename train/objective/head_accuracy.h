#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "model/drafters/drafter.h"
#include "train/objective/objective.h"
#include "train/objective/teacher_forcing.h"
#include "train/objective/token_map.h"

namespace clover::train {

/// What a head is fed with from the second on: the true tokens, or what the heads before it guessed.
enum class Feed { truth, own_guesses };

/// One scored label.
struct ScoredLabel {
  int64_t head;
  int64_t sample;    // of the packed batch
  int64_t position;  // index of the label's token in its sample
  int64_t rank;      // guesses ranked before it; top_ranks when it is not among the best, or cannot be said
};

/// Ranks of all supervised labels of a packed batch under a thawed drafter; `weight` as of loss_weight, fp32.
std::vector<ScoredLabel> score_labels(model::Drafter& drafter, const model::Features& features,
                                      const PackedBatch& batch, const LabelMap& label_map,
                                      const at::Tensor& weight, Feed feed);

}  // namespace clover::train
