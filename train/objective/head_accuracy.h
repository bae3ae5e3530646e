#pragma once

#include <cstdint>
#include <vector>

#include "model/drafters/drafter.h"
#include "train/objective/head_metrics.h"
#include "train/objective/packed_batch.h"
#include "train/objective/rollout.h"
#include "train/objective/token_map.h"

namespace clover::train {

/// The rank of one label among the logits of a head.
struct ScoredLabel {
  int64_t head;      // from 0
  int64_t sample;    // index in the packed batch
  int64_t position;  // index of the label's token in its sample
  int64_t rank;      // 0: the best guess; top_ranks: not among the best top_ranks guesses
};

/// The ranks of all supervised labels of a packed batch.  The drafter must be thawed
/// (trainable).  `heads`: the
/// vocabulary products of this drafter, in fp32.  `feed`: what the second and later heads read.
std::vector<ScoredLabel> score_labels(model::Drafter& drafter, const model::Features& features,
                                      const PackedBatch& batch, const LabelMap& label_map,
                                      const LossHeads& heads, const Feed& feed);

}  // namespace clover::train
