#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "data/training/token_store.h"
#include "model/cache/row_batch.h"

namespace clover::train {

/// The rows and labels of one head.  Heads run one after another: head i continues those rows of head
/// i-1 for which it, or a later head, has a label.
struct HeadLabels {
  at::Tensor parents;       // i64 [F]: for each row its row in the previous head (head 0: undefined)
  at::Tensor ids;           // i64 [F]: the true token that each row is extended by (head 0: undefined)
  at::Tensor sample;        // i64 [F]: the sample of each row, an index in the batch
  at::Tensor t;             // i64 [F]: the position of the row's features in its sample
  at::Tensor scored_rows;   // i64 [L]: rows whose label, token t + 2 + i of the sample, is supervised
  at::Tensor labels;        // i64 [L]: token ids of those labels
  at::Tensor teacher_rows;  // i64 [L]: the row of the batch before each label, where the target guesses it
};

/// Training samples packed as ragged rows without padding.  Row t of a sample has the target's features at
/// position t and the token x[t+1]; head i (from 0) predicts x[t+2+i].  A sample's rows after its last
/// labelled one are left out.  The path of a step: pack -> rollout (rollout.h) -> Objective (objective.h) ->
/// chunked_vocabulary_loss (vocabulary_loss.h).
struct PackedBatch {
  std::vector<model::Segment> segments;  // one for each sample with rows; `sequence` is the sample's index
  at::Tensor next_ids;                   // i64 [R]: x[t+1] of each row
  at::Tensor labelled_rows;              // i64 [F]: rows for which some head has a supervised label
  std::vector<HeadLabels> heads;         // [K]
  int64_t rows = 0;                      // R
  int64_t supervised = 0;                // supervised tokens, reported as answer tokens
};

/// Whether the rows of a batch include, of each sample, the one before its last label.  No head guesses from
/// it, but terms that compare with the target read its features there.
enum class TeacherRow { no, yes };

/// How many rows of a sample the drafter needs: up to the last one with a supervised label, and maybe the
/// teacher's row behind it; 0 without a label.
int64_t useful_rows(const data::TokenStore::Sample& sample, int64_t heads,
                    TeacherRow teacher = TeacherRow::no);

PackedBatch pack(std::span<const data::TokenStore::Sample> samples, int64_t heads,
                 TeacherRow teacher = TeacherRow::no);

/// The batch with the arguments of drafters (next_ids, labelled_rows, parents, ids) moved to `device`.
PackedBatch on_device(PackedBatch batch, at::Device device);

}  // namespace clover::train
