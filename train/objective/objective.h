#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "model/drafters/drafter.h"
#include "train/objective/head_metrics.h"
#include "train/objective/loss_terms.h"
#include "train/objective/packed_batch.h"
#include "train/objective/rollout.h"
#include "train/objective/token_map.h"

namespace clover::train {

/// The labels of one head that the draft vocabulary holds, L' of its L.
struct VocabularyLabels {
  at::Tensor rows;          // i64 [L']: rows of the head
  at::Tensor labels;        // i64 [L']: indices in the draft vocabulary
  at::Tensor teacher_rows;  // i64 [L']: as in HeadLabels
  at::Tensor sample, t;     // i64 [L']: as in HeadLabels
  at::Tensor scored;        // i64 [L']: which of the L
};

VocabularyLabels labels_in_draft_vocab(const HeadLabels& labels, const LabelMap& label_map);

/// InputError when the heads' outputs are not as wide as the target's features, and a term compares them.
void check_terms(const LossTerms& terms, const model::Drafter& drafter, int64_t target_hidden);

struct ObjectiveSettings {
  LossTerms terms = LossTerms::parse("cross-entropy");
  int64_t distill_samples = 0;        // n > 0: the labels of the cross-entropy are n draws from the target
  at::ScalarType dtype = at::kFloat;  // of the vocabulary products
};

/// The loss of a batch: for each head the weighted terms (loss_terms.h) of its rows, whatever the rows were
/// fed.  A row counts for all terms alike if its label is supervised and in the draft vocabulary.  The
/// target's distribution is that of the frozen LM head over the draft vocabulary, renormalised: softmax of
/// the logits of these tokens alone.  It is conditioned on the data's tokens, also where a row was fed a
/// guess.
class Objective {
 public:
  /// `drafter` is trainable and outlives the objective; `check_terms` must hold.
  Objective(model::Drafter& drafter, const model::TargetView& target, const ObjectiveSettings& settings);

  /// What `loss` needs of batches: teacher rows or none, and which features of the target.
  TeacherRow wants_teacher_row() const { return reads_features_ ? TeacherRow::yes : TeacherRow::no; }
  model::FeatureTaps taps() const;
  const LossTerms& terms() const { return settings_.terms; }
  const LossHeads& heads() const { return heads_; }
  const LabelMap& label_map() const { return label_map_; }

  /// A differentiable fp32 scalar: the sum over heads i of head_scale[i] times the sum over the rows of head
  /// i.  Undefined when no label is in the draft vocabulary.  `draws` gives the labels of `distill_samples`.
  /// Adds to `metrics` [K].
  at::Tensor loss(const model::Features& features, const PackedBatch& batch, const Feed& feed,
                  const Draws& draws, std::span<const double> head_scale, std::vector<HeadMetrics>& metrics);

 private:
  struct OwnHeads;
  VocabularyTargets targets_of(const model::Features& features, const VocabularyLabels& kept, int64_t depth,
                               const Draws& draws) const;

  model::Drafter& drafter_;
  ObjectiveSettings settings_;
  LossHeads heads_;
  LabelMap label_map_;
  bool reads_features_;        // whether a term reads the target's features
  at::Tensor teacher_weight_;  // [V', H], where P is read
};

}  // namespace clover::train
