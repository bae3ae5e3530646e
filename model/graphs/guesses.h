#pragma once

#include <ATen/core/Tensor.h>

#include "model/drafters/drafter.h"

namespace clover::model {

/// A drafter's best guesses at F rows, best first.  All undefined where F is 0.
struct Guesses {
  at::Tensor logits;    // fp32 [F, W or more]
  at::Tensor ids;       // i64, the same: tokens of the target's vocabulary, of equal logits the lowest first
  at::Tensor log_sums;  // fp32 [F], over the drafter's vocabulary, or over the best guesses alone
};

/// The `width` best guesses at a state's rows, on their device; the drafter is frozen.  `softmax_over` (0:
/// the whole vocabulary): the log-sums are over so many best guesses of a row only, as if the others were
/// impossible; width is at most that.
Guesses guesses_of(Drafter& drafter, const DraftState& state, int64_t width, int64_t softmax_over = 0);

}  // namespace clover::model
