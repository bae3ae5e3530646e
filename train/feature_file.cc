#include "train/feature_file.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "data/error.h"
#include "data/safetensors.h"

namespace clover::train {
std::vector<model::Features> FeatureFile::read(int64_t samples, int64_t hidden, at::ScalarType dtype) const {
  const auto reader = data::SafetensorsReader::open(path);
  const auto refuse = [&](const std::string& what) {
    throw data::InputError(path.string() + " " + what + ": remove it, or give another --feature-file.");
  };
  for (const auto& [name, value] : identity) {
    const auto found = reader.metadata().find(name);
    if (found == reader.metadata().end()) refuse("is no file of features");
    if (found->second != value)
      refuse("holds features of another " + name + " (" + found->second + ", not " + value + ")");
  }
  const at::Tensor rows = reader.read("rows", {samples});
  if (rows.scalar_type() != at::kLong) refuse("has \"rows\" that are no int64");
  int64_t all = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t count = rows.const_data_ptr<int64_t>()[i];
    if (count < 0 || count > INT32_MAX) refuse("has a sample of " + std::to_string(count) + " rows");
    all += count;
  }
  const model::Features joined{reader.read("pre_norm", {all, hidden}),
                               reader.read("post_norm", {all, hidden})};
  if (joined.pre_norm.scalar_type() != dtype || joined.post_norm.scalar_type() != dtype)
    refuse("has features that are not in the target's dtype");
  std::vector<model::Features> by_sample(samples);
  int64_t begin = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t count = rows.const_data_ptr<int64_t>()[i];
    if (count > 0)
      by_sample[i] = {joined.pre_norm.narrow(0, begin, count), joined.post_norm.narrow(0, begin, count)};
    begin += count;
  }
  return by_sample;
}

void FeatureFile::write(const std::vector<model::Features>& by_sample) const {
  std::vector<at::Tensor> pre_norm, post_norm;
  at::Tensor rows = at::empty({std::ssize(by_sample)}, at::kLong);
  for (size_t i = 0; i < by_sample.size(); ++i) {
    rows.data_ptr<int64_t>()[i] = by_sample[i].size();
    if (by_sample[i].size() == 0) continue;
    pre_norm.push_back(by_sample[i].pre_norm);
    post_norm.push_back(by_sample[i].post_norm);
  }
  data::write_safetensors(
      path, {{"rows", rows}, {"pre_norm", at::cat(pre_norm)}, {"post_norm", at::cat(post_norm)}}, identity);
}

}  // namespace clover::train
