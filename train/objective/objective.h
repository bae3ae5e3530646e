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

/// Those L' of the L labels of a head (HeadLabels) that are in the draft vocabulary.
struct VocabularyLabels {
  at::Tensor rows;           // i64 [L']: indices of their rows among the rows of the head
  at::Tensor labels;         // i64 [L']: indices in the draft vocabulary
  at::Tensor teacher_rows;   // i64 [L']: as in HeadLabels
  at::Tensor sample, t;      // i64 [L']: of their rows, as in HeadLabels
  at::Tensor label_indices;  // i64 [L']: indices of these labels among the L
};

VocabularyLabels labels_in_draft_vocab(const HeadLabels& labels, const LabelMap& label_map);

/// InputError if a term compares the heads' outputs with the target's features and their widths differ.
/// target_hidden: H.
void check_terms(const LossTerms& terms, const model::Drafter& drafter, int64_t target_hidden);

struct ObjectiveSettings {
  LossTerms terms = LossTerms::parse("cross-entropy");
  /// n > 0: the cross-entropy has n labels a row, drawn from the target's distribution; 0: the data's token.
  int64_t distill_samples = 0;
  at::ScalarType dtype = at::kFloat;  // of the vocabulary products
};

/// The loss of a batch: for each head the weighted sum of the terms (loss_terms.h) of its rows.  A row has a
/// loss if its label is supervised and in the draft vocabulary.  The target's distribution P is renormalised
/// over the draft vocabulary: it is the softmax of the logits of these tokens alone.  The target always read
/// the data's tokens, even where a row was fed the drafter's guess.
class Objective {
 public:
  /// `drafter` must be trainable, pass `check_terms` and outlive the objective.
  Objective(model::Drafter& drafter, const model::TargetView& target, const ObjectiveSettings& settings);

  /// What `loss` needs: whether batches also have the row just before each sample's last label, whose
  /// features of the target it reads (packed_batch.h); and which features of the target it reads at all.
  TeacherRow wants_teacher_row() const { return reads_features_ ? TeacherRow::yes : TeacherRow::no; }
  model::FeatureTaps taps() const;
  const LossTerms& terms() const { return settings_.terms; }
  const LossHeads& heads() const { return heads_; }
  const LabelMap& label_map() const { return label_map_; }

  /// A differentiable fp32 scalar: the sum over heads i of head_scale[i] times the loss of the rows of head
  /// i. Undefined when no label is in the draft vocabulary.  `features`: of the rows of `batch`; `feed`: what
  /// the second and later heads read; `draws`: the random numbers for `distill_samples`.  Adds the results of
  /// each head to `metrics` [K].
  at::Tensor loss(const model::Features& features, const PackedBatch& batch, const Feed& feed,
                  const Draws& draws, std::span<const double> head_scale, std::vector<HeadMetrics>& metrics);

 private:
  struct HeadGradients;
  /// What the loss compares the rows of these labels with.
  VocabularyTargets targets_of(const model::Features& features, const VocabularyLabels& labels, int64_t depth,
                               const Draws& draws) const;

  model::Drafter& drafter_;
  ObjectiveSettings settings_;
  LossHeads heads_;
  LabelMap label_map_;
  bool reads_features_;        // whether a term reads the target's features
  at::Tensor teacher_weight_;  // [V', H]: the target's LM head; undefined unless a term or label needs P
};

}  // namespace clover::train
