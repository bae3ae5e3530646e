#include "train/feature_file.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "data/error.h"
#include "data/safetensors.h"

namespace clover::train {
namespace {

constexpr const char* layers_key = "layers";

std::string text_of(const std::vector<int64_t>& layers) {
  std::string text;
  for (const int64_t layer : layers) text += (text.empty() ? "" : ",") + std::to_string(layer);
  return text;
}

}  // namespace

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
  const auto known = reader.metadata().find(layers_key);
  const std::string tapped = known == reader.metadata().end() ? "" : known->second;
  if (!layers.empty() && tapped != text_of(layers))
    refuse("holds features of " + (tapped.empty() ? "no lower layers" : "layers " + tapped) + " (not " +
           text_of(layers) + ")");
  const at::Tensor rows = reader.read("rows", {samples});
  if (rows.scalar_type() != at::kLong) refuse("has \"rows\" that are no int64");
  int64_t all = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t count = rows.const_data_ptr<int64_t>()[i];
    if (count < 0 || count > INT32_MAX) refuse("has a sample of " + std::to_string(count) + " rows");
    all += count;
  }
  model::Features joined{reader.read("pre_norm", {all, hidden}), reader.read("post_norm", {all, hidden})};
  if (!layers.empty()) joined.layers = reader.read("layers", {all, hidden * std::ssize(layers)});
  for (const auto member : model::feature_members) {
    if ((joined.*member).defined() && (joined.*member).scalar_type() != dtype)
      refuse("has features that are not in the target's dtype");
  }
  std::vector<model::Features> by_sample(samples);
  int64_t begin = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t count = rows.const_data_ptr<int64_t>()[i];
    if (count > 0) by_sample[i] = joined.slice(begin, begin + count);
    begin += count;
  }
  return by_sample;
}

void FeatureFile::write(const std::vector<model::Features>& by_sample) const {
  std::vector<model::Features> useful;
  at::Tensor rows = at::empty({std::ssize(by_sample)}, at::kLong);
  for (size_t i = 0; i < by_sample.size(); ++i) {
    rows.data_ptr<int64_t>()[i] = by_sample[i].size();
    if (by_sample[i].size() > 0) useful.push_back(by_sample[i]);
  }
  const model::Features joined = model::Features::joined(useful);
  data::NamedTensors tensors{{"rows", rows}, {"pre_norm", joined.pre_norm}, {"post_norm", joined.post_norm}};
  std::map<std::string, std::string> about = identity;
  if (!layers.empty()) {
    tensors.emplace_back("layers", joined.layers);
    about[layers_key] = text_of(layers);
  }
  data::write_safetensors(path, tensors, about);
}

}  // namespace clover::train
