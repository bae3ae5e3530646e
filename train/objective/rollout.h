#pragma once

#include <functional>

#include "model/drafters/drafter.h"
#include "train/objective/draws.h"
#include "train/objective/packed_batch.h"
#include "train/objective/vocabulary_loss.h"

namespace clover::train {

/// The vocabulary products (hidden states into logits) of a drafter's heads, in the dtype in which losses
/// compute them.
class LossHeads {
 public:
  /// `dtype`: of the products, fp32 or bf16.  The drafter must have been made for training and outlive this.
  LossHeads(const model::Drafter& drafter, at::ScalarType dtype);

  /// The current weights of the head at `depth`.  Weights that are trained are cast anew at each call.
  LossHead at(int64_t depth) const;

 private:
  const model::Drafter& drafter_;
  at::ScalarType dtype_;
  // Where all heads share the target's frozen LM head: its weight [V', D], and the same in dtype_.
  at::Tensor shared_weight_, shared_cast_;
};

/// Which tokens the rows of the second and later heads are fed: the true ones or the drafter's own guesses.
struct Feed {
  /// The probability that a row is fed the drafter's own best guess in place of the true token.  0: teacher
  /// forcing; 1: always, as in decoding; between: self-feeding, decided for each row by `draws`.
  double own_guess_share = 0;
  const LossHeads* heads = nullptr;  // compute the logits of own guesses; may be null if the share is 0
  Draws draws{};                     // read only if the share is between 0 and 1

  bool uses_own_guesses() const { return own_guess_share > 0; }
};

/// Called for each depth with the state of the F rows of head `depth`, and their labels.
using Visitor = std::function<void(int64_t depth, const model::DraftState& state, const HeadLabels& labels)>;

/// Drafts over all depths of a batch: calls Drafter::prime, visits depth 0, calls Drafter::extend with the
/// tokens that `feed` chooses, visits depth 1, and so on.  Training, scoring and evaluation all draft through
/// this function.  `features` [R, ..] are those of the batch's rows; the drafter and the batch are on their
/// device.  Each depth continues the drafter's own states of the depth before, whatever it is fed, and
/// gradients flow through them; for kinds whose state is their own output this is EAGLE-3's training-time
/// test.  Own guesses are the arg max over the draft vocabulary.  They are computed only for the rows that
/// are fed them, and never for kinds that read no ids.
void rollout(model::Drafter& drafter, const model::Features& features, const PackedBatch& batch,
             const Feed& feed, const Visitor& visit);

}  // namespace clover::train
