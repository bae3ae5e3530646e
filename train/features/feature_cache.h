#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/training/token_store.h"
#include "model/cache/kv_cache.h"
#include "model/target/target.h"
#include "train/features/finite_features.h"

namespace clover::train {

/// Computes the frozen target's features of samples and caches them on the CPU.  A sample's features
/// are the same bits in any batch and epoch, so they are computed once and cached until the cache is full;
/// the features of other samples are computed each time.
class FeatureCache {
 public:
  /// wanted: the features that `features_of` returns.  longest_sample: its number of tokens.  cache_bytes:
  /// memory for the cache; 0: none.  origin: for messages.
  FeatureCache(const model::Target& target, model::FeatureTaps wanted, int64_t longest_sample,
               int64_t cache_bytes, FeatureOrigin origin);

  /// Prepares for a feature file (feature_file.h) of `samples` samples.  From now on the cache holds what
  /// heads of any kind and any loss can read: pre_norm and post_norm, and one more row of each sample
  /// (TeacherRow in packed_batch.h).  `stored`: the features by sample from an existing file, which go into
  /// the cache; empty if the file is to be written.  `used_samples`: the samples whose features a new file
  /// must hold.
  void retain_for_file(const std::vector<model::Features>& stored, int64_t samples,
                       std::span<const int64_t> used_samples);
  /// The features of all samples, by sample, to write a feature file; undefined for a sample without rows.
  /// Null while a used sample is not in the cache.
  const std::vector<model::Features>* all_features(int64_t samples) const;
  /// Frees the memory of passes; the next one takes it again.
  void free_pass_memory() { kv_.reset(); }
  /// Rows that the target has computed so far.
  int64_t computed_rows() const { return computed_rows_; }

  /// The features of rows 0 .. rows[i]-1 of each sample i, one sample after another, on the target's device.
  /// keys[i]: the sample's index in the cache; -1: it is not cached.  prompt_lengths[i]: tokens of its
  /// prompt, which dynamic RoPE rotates as decoding does (KvCache::open); none: as a text without a prompt.
  /// Throws as `check_finite`.
  model::Features features_of(std::span<const data::TokenStore::Sample> samples,
                              std::span<const int64_t> rows, std::span<const int64_t> keys,
                              std::span<const int64_t> prompt_lengths = {});
  /// How many rows of the sample with this key are cached.
  int64_t cached_rows(int64_t key) const { return key < std::ssize(cached_) ? cached_[key].size() : 0; }

 private:
  /// The target's features of these samples, on the CPU; undefined where rows[i] is 0.
  std::vector<model::Features> compute(std::span<const data::TokenStore::Sample> samples,
                                       std::span<const int64_t> rows,
                                       std::span<const int64_t> prompt_lengths);
  void insert(int64_t key, const model::Features& features);  // unless the cache is full

  const model::Target& target_;
  FeatureOrigin origin_;
  model::FeatureTaps wanted_;            // to return
  model::FeatureTaps taps_;              // to compute and cache
  int64_t longest_sample_;               // tokens
  std::optional<model::KvCache> kv_;     // of the passes that compute features; the first one makes it
  int64_t max_bytes_;                    // of cached_
  bool for_file_ = false;                // whether one more row of each sample is computed
  int64_t used_bytes_ = 0;               // of cached_
  std::vector<model::Features> cached_;  // by key, on the CPU; undefined where not cached
  int64_t computed_rows_ = 0;
  std::vector<char> complete_;  // by key: 1 if cached, or if a feature file needs no rows of it
};

}  // namespace clover::train
