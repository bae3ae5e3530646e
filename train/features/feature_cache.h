#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/training/token_store.h"
#include "model/cache/kv_cache.h"
#include "model/target/target.h"
#include "train/features/finite_features.h"

namespace clover::train {

/// Computes the frozen target's features of training samples and caches them.  A sample's features are the
/// same bits in any batch and epoch, so they are computed once and kept while they fit in memory; the others
/// are computed again each time.
class FeatureCache {
 public:
  /// wanted: the features that the drafter reads.  longest: tokens of the longest sample.  cache_bytes:
  /// memory for the cache; 0: none.  origin: for messages.
  FeatureCache(const model::Target& target, model::FeatureTaps wanted, int64_t longest, int64_t cache_bytes,
               FeatureOrigin origin);

  /// Prepares for a feature file of `samples` samples: from now on both pre_norm and post_norm are kept,
  /// which drafters of any kind read, and one row more of each sample, which losses that read the target
  /// need. known: the features by sample from an existing file, or empty; then only the samples `asked` will
  /// be computed.
  void retain_for_file(const std::vector<model::Features>& known, int64_t samples,
                       std::span<const int64_t> asked);
  /// All features by sample, for the feature file; undefined for samples without rows.  Null while some are
  /// not in the cache.
  const std::vector<model::Features>* all_features(int64_t samples) const;

  /// Features of rows 0 .. rows[i]-1 of each sample, one sample after another, on the target's device.  keys:
  /// the index of each sample for the cache; -1: the sample is not cached.  InputError as `check_finite`.
  model::Features of(std::span<const data::TokenStore::Sample> samples, std::span<const int64_t> rows,
                     std::span<const int64_t> keys);

 private:
  std::vector<model::Features> compute(std::span<const data::TokenStore::Sample> samples,
                                       std::span<const int64_t> rows);
  void keep(int64_t key, const model::Features& features);

  const model::Target& target_;
  FeatureOrigin origin_;
  model::FeatureTaps wanted_, taps_;
  model::KvCache kv_;
  int64_t cache_bytes_;
  bool for_file_ = false;  // whether one row more of each sample is computed
  int64_t cached_bytes_ = 0;
  std::vector<model::Features> kept_;  // the cache, by key, on the CPU
  std::vector<char> known_;            // by key: 1 if cached, or without rows
};

}  // namespace clover::train
