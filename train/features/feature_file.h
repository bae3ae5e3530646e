#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/target/target.h"

namespace clover::train {

/// The frozen target's features of the training samples on disk, so that several runs on the same data (a
/// sweep, other heads) compute them once.  One safetensors file: "rows" i64 [N], the rows of each sample, and
/// "pre_norm" and "post_norm" [R, H] in the target's dtype, sample after sample; "layers" [R, n H] if it was
/// written for heads that tap n layers, which the metadata names ("10,20").  Heads that tap no layer can read
/// it, too.  The metadata holds a checksum of everything; older files without one are accepted.
struct FeatureFile {
  std::filesystem::path path;
  std::map<std::string, std::string> identity;  // what the features depend on
  std::vector<int64_t> layers;                  // layers that the heads tap
  std::string sampled_target = {};              // the target's fingerprint as the oldest files record it

  /// The features by sample, as views of the mapped file.  The whole file is read once for its checksum.
  /// InputError when it is damaged or of another identity.
  std::vector<model::Features> read(int64_t samples, int64_t hidden, at::ScalarType dtype) const;

  /// Writes the file atomically.  Samples without rows have undefined features.
  void write(const std::vector<model::Features>& by_sample) const;
};

}  // namespace clover::train
