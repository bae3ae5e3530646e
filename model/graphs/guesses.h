#pragma once

#include <ATen/core/Tensor.h>

#include "model/drafters/drafter.h"

namespace clover::model {

/// A drafter's G best guesses at each of F rows, best first; of equal logits the lowest token id first.  G is
/// the width asked for or more.  All members are undefined if F is 0.
struct Guesses {
  at::Tensor logits;    // fp32 [F, G]
  at::Tensor ids;       // i64 [F, G] tokens of the target's vocabulary
  at::Tensor log_sums;  // fp32 [F] logsumexp of a row's logits: a guess's log-probability is logit - log_sum
};

/// The `width` best guesses at the rows of `state`, on its device.  The drafter is frozen.  `softmax_over`:
/// how many of a row's best logits log_sums covers, as if other tokens were impossible; 0: the drafter's
/// whole vocabulary.  `width` is at most that.
Guesses guesses_of(Drafter& drafter, const DraftState& state, int64_t width, int64_t softmax_over = 0);

}  // namespace clover::model
