#pragma once

#include <ATen/core/Tensor.h>

#include "model/drafters/drafter.h"

namespace clover::model {

/// A drafter's best guesses at F rows, best first.  All undefined where F is 0.
struct Guesses {
  at::Tensor logits;    // fp32 [F, W or more]
  at::Tensor ids;       // i64, the same: tokens of the target's vocabulary, of equal logits the lowest first
  at::Tensor log_sums;  // fp32 [F], each over the whole of the drafter's vocabulary
};

/// The `width` best guesses at a state's rows, on their device; the drafter is frozen.
Guesses guesses_of(Drafter& drafter, const DraftState& state, int64_t width);

/// W guesses a row as one tensor, for one copy to the CPU: bytes [F, 12 W + 4], a row's ids, logits, log-sum.
at::Tensor packed(const Guesses& guesses);
/// The first `rows` rows of `packed` on the CPU; waits for the copy.
Guesses unpacked(const at::Tensor& packed, int64_t rows);

}  // namespace clover::model
