#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "data/training/token_store.h"
#include "model/cache/row_batch.h"

namespace clover::train {

/// What one head has to do on the rows of a packed batch.
struct HeadWork {
  at::Tensor parents;   // i64 [F]: rows of the previous depth's frontier that live on (depth 0: undefined)
  at::Tensor ids;       // i64 [F]: the true token each is extended by (depth 0: undefined)
  at::Tensor scored;    // i64 [L]: rows of this depth's frontier whose label is supervised
  at::Tensor labels;    // i64 [L]: token ids of those labels
  at::Tensor sample;    // i64 [L]: which sample of the batch each belongs to
  at::Tensor position;  // i64 [L]: index of the label's token in its sample
};

/// Training answers packed as ragged rows, nothing padded.  Row t of a sample carries the target's feature at
/// t and the token x[t+1]; head i guesses x[t+2+i].  Rows behind the last useful one are left out.
struct PackedBatch {
  std::vector<model::Segment> segments;  // one a sample with useful rows; `sequence` is the sample's number
  at::Tensor next_ids;                   // i64 [R]
  at::Tensor frontier;                   // i64 [F]: rows with a supervised label among their heads' labels
  std::vector<HeadWork> heads;           // [K]
  int64_t rows = 0;                      // R
  int64_t supervised = 0;                // supervised tokens of the samples: "answer tokens"
};

/// Rows of a sample the drafter needs: up to the last one with a supervised label.  0 when it has none.
int64_t useful_rows(const data::TokenStore::Sample& sample, int64_t heads);

PackedBatch pack(std::span<const data::TokenStore::Sample> samples, int64_t heads);

/// With what drafters are called with (next_ids, frontier, parents, ids) on the device.
PackedBatch on_device(PackedBatch batch, at::Device device);

}  // namespace clover::train
