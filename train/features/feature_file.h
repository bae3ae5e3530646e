#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/target/target.h"

namespace clover::train {

/// What features of samples with this hash depend on.
std::map<std::string, std::string> feature_identity(const model::Target& target,
                                                    const std::string& data_hash);

/// The frozen target's features of N samples on disk, so that several runs on the same data (a
/// sweep, other heads) compute them once.  One safetensors file: "rows" i64 [N], the number of rows of each
/// sample, R in all; "pre_norm" and "post_norm" [R, H] in the target's dtype, sample after sample; and
/// "layers" [R, n H] if it was written for heads that tap n layers, which the metadata names ("10,20"). Heads
/// that tap no layer can read a file with layers, too.  The metadata holds a checksum of metadata and
/// tensors; older files without one are accepted.
struct FeatureFile {
  std::filesystem::path path;
  // What the features depend on, as the metadata records it: feature_identity and what else the owner adds.
  std::map<std::string, std::string> identity;
  std::vector<int64_t> layers;      // layers that the heads tap, from 1
  std::string sampled_target = {};  // the target's fingerprint as the oldest files record it

  /// The features by sample, as views of the mapped file.  The whole file is read once for its checksum.
  /// InputError when it is damaged, of another identity, or without the tapped layers.
  std::vector<model::Features> read(int64_t samples, int64_t hidden, at::ScalarType dtype) const;

  /// Writes the file atomically.  `by_sample`: undefined features for samples without rows.
  void write(const std::vector<model::Features>& by_sample) const;
};

}  // namespace clover::train
