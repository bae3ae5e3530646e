#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <numeric>
#include <vector>

#include "model/target/target.h"
#include "tests/support/goldens.h"

namespace clover::test {

inline std::vector<int64_t> to_ids(const at::Tensor& ids) {
  const at::Tensor dense = ids.contiguous();
  return {dense.data_ptr<int64_t>(), dense.data_ptr<int64_t>() + dense.numel()};
}

/// The target's output for `ids` as one sequence, read `chunk` rows a pass: logits [R, V] and features of
/// every row, with the residual streams after `layers`.  `sequence`: an open sequence of `cache`.
inline model::TargetOutput read_text(const model::Target& target, const std::vector<int64_t>& ids,
                                     int64_t chunk, model::KvCache& cache, int32_t sequence,
                                     const std::vector<int64_t>& layers = {}) {
  std::vector<at::Tensor> logits;
  std::vector<model::Features> features;
  const int64_t length = static_cast<int64_t>(ids.size());
  for (int64_t begin = 0; begin < length; begin += chunk) {
    model::RowBatch batch;
    for (int64_t i = begin; i < std::min(length, begin + chunk); ++i) {
      batch.wanted_rows.push_back(batch.size());
      batch.add(ids[i], sequence, static_cast<int32_t>(i - begin) - 1);
    }
    const model::TargetOutput output = target.forward(batch, cache, {true, true, layers});
    std::vector<int32_t> kept(batch.size());
    std::iota(kept.begin(), kept.end(), 0);
    cache.keep_rows(sequence, kept, target.config().layers);
    logits.push_back(output.logits);
    features.push_back(output.features);
  }
  return {at::cat(logits), model::Features::concatenated(features)};
}

/// The same with a new cache.
inline model::TargetOutput read_text(const model::Target& target, const std::vector<int64_t>& ids,
                                     int64_t chunk = 1 << 20, const std::vector<int64_t>& layers = {}) {
  model::KvCache cache(target.kv_shape(0), static_cast<int64_t>(ids.size()) / 16 + 8, 16);
  return read_text(target, ids, chunk, cache, cache.open(std::ssize(ids)), layers);
}

}  // namespace clover::test
