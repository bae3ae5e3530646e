#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/training/token_store.h"
#include "model/cache/kv_cache.h"
#include "model/target/target.h"
#include "train/features/finite_features.h"

namespace clover::train {

/// The frozen target's features of training samples.  A sample's features are the same bits in any batch and
/// in every epoch, so they are computed once and kept while they fit in memory; the rest is computed again
/// each time.
class FeatureSource {
 public:
  /// wanted: what the drafter reads.  longest: tokens of the longest sample.  cache_bytes: memory for
  /// features of later epochs; 0: none.  `origin`: for messages.
  FeatureSource(const model::Target& target, model::FeatureTaps wanted, int64_t longest, int64_t cache_bytes,
                FeatureOrigin origin);

  /// Keeps features of each of `samples` that other drafters read, too (not the layers that they tap).
  /// `known`: by sample those of a feature file, empty without one; then nobody will ask for those not in
  /// `asked`.
  void keep_for_file(const std::vector<model::Features>& known, int64_t samples,
                     std::span<const int64_t> asked);
  /// By sample, undefined where a sample has no useful row; nothing while some are not known or not kept.
  const std::vector<model::Features>* all(int64_t samples) const;

  /// Features of rows 0 .. rows[i]-1 of each sample, sample after sample.  `keys` name the samples (>= 0,
  /// dense); a key of -1 is never kept.  InputError as `check_finite`.
  model::Features of(std::span<const data::TokenStore::Sample> samples, std::span<const int64_t> rows,
                     std::span<const int64_t> keys);

  int64_t cached_bytes() const { return cached_bytes_; }
  int64_t computed_rows() const { return computed_rows_; }

 private:
  std::vector<model::Features> compute(std::span<const data::TokenStore::Sample> samples,
                                       std::span<const int64_t> rows);
  void keep(int64_t key, const model::Features& features);

  const model::Target& target_;
  FeatureOrigin origin_;
  model::FeatureTaps wanted_, taps_;
  model::KvCache kv_;
  int64_t cache_bytes_;
  int64_t cached_bytes_ = 0;
  int64_t computed_rows_ = 0;
  std::vector<model::Features> kept_;  // by key
  std::vector<char> known_;            // by key: kept, or without a row to keep
};

}  // namespace clover::train
