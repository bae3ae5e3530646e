#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/target/target.h"

namespace clover::train {

/// What the frozen target says of training samples, on disk: several runs on the same data (a sweep, another
/// kind of heads) ask it once.  One safetensors file: "rows" i64 [N], and "pre_norm" and "post_norm" [R, H]
/// in the target's dtype, sample after sample; "layers" [R, n H] where it was
/// written for heads that tap n layers, which its metadata names ("10,20"); heads that tap none read it, too.
/// Its metadata holds a checksum of all of it; files of before there was one are read without.
struct FeatureFile {
  std::filesystem::path path;
  std::map<std::string, std::string> identity;  // what the features depend on
  std::vector<int64_t> layers;                  // those that the heads tap
  std::string sampled_target = {};              // what files recorded of the target at first

  /// By sample; they lie in the mapped file, which is read whole for its checksum.  InputError when it is
  /// damaged or of another identity.
  std::vector<model::Features> read(int64_t samples, int64_t hidden, at::ScalarType dtype) const;

  /// Whole or not at all.  Undefined features stand for samples without a useful row.
  void write(const std::vector<model::Features>& by_sample) const;
};

}  // namespace clover::train
