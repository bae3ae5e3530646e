#pragma once

#include <functional>

#include "model/drafters/drafter.h"
#include "train/objective/draws.h"
#include "train/objective/packed_batch.h"
#include "train/objective/vocabulary_loss.h"

namespace clover::train {

/// The vocabulary products of a drafter's heads, as losses compute them.
class LossHeads {
 public:
  /// `dtype`: of the products, fp32 or bf16.  The drafter must have been made for training and outlive this.
  LossHeads(const model::Drafter& drafter, at::ScalarType dtype);

  /// The present weights of the head at `depth`: those of a head that is trained are cast at each call.
  LossHead at(int64_t depth) const;

 private:
  const model::Drafter& drafter_;
  at::ScalarType dtype_;
  at::Tensor shared_weight_, shared_cast_;  // that of all heads if they are not trained, and its cast
};

/// Which tokens the rows of the second and later heads are fed.
struct Feed {
  /// The probability that a row is fed the drafter's own best guess in place of the true token.  0: teacher
  /// forcing; 1: as while decoding; between: self-feeding, drawn for each row from `draws`.
  double own_share = 0;
  const LossHeads* heads = nullptr;  // what own guesses are made with; null with share 0
  Draws draws{};                     // read where the share is between 0 and 1

  bool own_guesses() const { return own_share > 0; }
};

/// Called for each depth: the state of its rows, and their labels.
using Visitor = std::function<void(int64_t depth, const model::DraftState& state, const HeadLabels& labels)>;

/// Drafts over all depths of a batch, on the device of `features`: primes, visits depth 0, extends by what
/// `feed` says, visits depth 1, and so on.  Training, scoring and evaluation all draft through this function.
/// The drafter continues from its own states at every depth, whatever it is fed, and gradients flow through
/// them; for kinds whose state is their own output this is EAGLE-3's training-time test.  Own guesses are the
/// arg max over the draft vocabulary, computed only for the rows that are fed with them, and never for kinds
/// that read no ids.
void rollout(model::Drafter& drafter, const model::Features& features, const PackedBatch& batch,
             const Feed& feed, const Visitor& visit);

}  // namespace clover::train
