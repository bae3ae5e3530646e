#pragma once

#include <ATen/core/Tensor.h>

#include "model/drafters/drafter.h"

namespace clover::model {

/// The best guesses of F rows, best first.  All undefined where no row was asked for.
struct Guesses {
  at::Tensor logits;    // fp32 [F, W or more]
  at::Tensor ids;       // i64, the same: tokens of the target's vocabulary, of equal logits the lowest first
  at::Tensor log_sums;  // fp32 [F], each over the whole of the drafter's vocabulary
};

/// The `width` best guesses of a state's rows, where they lie; the drafter is frozen.
Guesses guesses_of(Drafter& drafter, const DraftState& state, int64_t width);

/// Guesses W a row, for one copy to take to the CPU: bytes [F, 12 W + 4], a row's ids, logits and log-sum.
at::Tensor packed(const Guesses& guesses);
/// The first `rows` rows of them, waited for.
Guesses unpacked(const at::Tensor& packed, int64_t rows);

}  // namespace clover::model
