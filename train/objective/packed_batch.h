#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "data/training/token_store.h"
#include "model/cache/row_batch.h"

namespace clover::train {

/// The F rows of head i, and its L labels.  Heads run one after another: head i continues those rows of head
/// i-1 for which it, or a later head, has a label.  Some of its rows may have no label of their own.
struct HeadLabels {
  at::Tensor parents;  // i64 [F]: the index of each row's parent among the rows of head i-1; i = 0: undefined
  at::Tensor ids;      // i64 [F]: the true token that extends each parent; i = 0: undefined
  at::Tensor sample;   // i64 [F]: index in the batch of each row's sample
  at::Tensor t;        // i64 [F]: position in the sample of the feature that each row began from
  at::Tensor scored_rows;   // i64 [L]: indices of the rows whose label, token t + 2 + i, is supervised
  at::Tensor labels;        // i64 [L]: token ids of these labels
  at::Tensor teacher_rows;  // i64 [L]: indices of the batch's rows just before each label, where the target
                            // predicts it
};

/// Training samples packed as R ragged rows without padding.  x are the tokens of a sample.  Row t has the
/// target's features at position t and the token x[t+1]; head i (from 0) predicts x[t+2+i].  A sample's rows
/// after its last labelled one are left out.  A training step then goes on in Objective::loss (objective.h),
/// which calls rollout (rollout.h) and chunked_vocabulary_loss (vocabulary_loss.h).
struct PackedBatch {
  std::vector<model::Segment> segments;  // one for each sample with rows; `sequence`: the sample's index
  at::Tensor next_ids;                   // i64 [R]: x[t+1] of each row
  at::Tensor labelled_rows;              // i64 [F of head 0]: rows for which some head has a supervised label
  std::vector<HeadLabels> heads;         // [K]
  int64_t rows = 0;                      // R
  int64_t supervised = 0;                // supervised tokens of the samples, reported as answer tokens
};

/// Whether the rows of a batch include the teacher's row of each sample's last label: the row just before the
/// label.  No head guesses from it, but loss terms that compare with the target read its features there.
enum class TeacherRow { no, yes };

/// How many rows of a sample a batch for `heads` heads includes: up to the last one with a supervised label,
/// and with TeacherRow::yes one more; 0 if the sample has no label.
int64_t useful_rows(const data::TokenStore::Sample& sample, int64_t heads,
                    TeacherRow teacher = TeacherRow::no);

/// Packs the samples for `heads` heads, on the CPU.
PackedBatch pack(std::span<const data::TokenStore::Sample> samples, int64_t heads,
                 TeacherRow teacher = TeacherRow::no);

/// The batch with the tensors that drafters read (next_ids, labelled_rows, parents, ids) moved to `device`;
/// the others stay on the CPU.
PackedBatch on_device(PackedBatch batch, at::Device device);

}  // namespace clover::train
