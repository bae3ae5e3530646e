#pragma once

#include <cstdint>
#include <vector>

#include "model/drafters/drafter.h"
#include "train/objective/head_metrics.h"
#include "train/objective/packed_batch.h"
#include "train/objective/rollout.h"
#include "train/objective/token_map.h"

namespace clover::train {

/// The rank that a head gave to one label.
struct ScoredLabel {
  int64_t head;
  int64_t sample;    // index in the packed batch
  int64_t position;  // index of the label's token in its sample
  int64_t rank;      // 0: best guess; top_ranks: not among the best, or outside the draft vocabulary
};

/// Ranks of all supervised labels of a packed batch.  The drafter must be thawed; `heads`: its own, in fp32.
std::vector<ScoredLabel> score_labels(model::Drafter& drafter, const model::Features& features,
                                      const PackedBatch& batch, const LabelMap& label_map,
                                      const LossHeads& heads, const Feed& feed);

}  // namespace clover::train
