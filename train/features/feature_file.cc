#include "train/features/feature_file.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "data/files/checksum.h"
#include "data/files/error.h"
#include "data/files/hash.h"
#include "data/files/safetensors.h"
#include "kernels/cpu/cpu_path.h"

namespace clover::train {
namespace {

constexpr const char* layers_key = "layers";
constexpr const char* checksum_key = "checksum";

using Metadata = std::map<std::string, std::string>;

std::string comma_separated(const std::vector<int64_t>& layers) {
  std::string text;
  for (const int64_t layer : layers) text += (text.empty() ? "" : ",") + std::to_string(layer);
  return text;
}

/// The checksum of a file's metadata and tensors, the tensors in order of name.
std::string checksum_of(const Metadata& metadata, data::NamedTensors tensors) {
  uint64_t sum = 0;
  for (const auto& [key, value] : metadata)
    if (key != checksum_key) sum = data::checksum(value, data::checksum(key, sum));
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor dense = tensor.contiguous();
    sum = data::checksum(name + " " + c10::str(dense.scalar_type(), " ", dense.sizes()), sum);
    sum = data::checksum({static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()}, sum);
  }
  return data::hex(sum);
}

/// Why the file is damaged; "" if it is whole, or an older file without a checksum.
std::string why_damaged(const data::SafetensorsReader& reader, const Metadata& identity) {
  const Metadata& metadata = reader.metadata();
  for (const auto& [key, value] : metadata) {
    if (key != checksum_key && key != layers_key && !identity.contains(key))
      return "says \"" + key.substr(0, 80) + "\" of itself, which no file of features does";
  }
  const auto recorded = metadata.find(checksum_key);
  if (recorded == metadata.end()) return "";
  data::NamedTensors tensors;
  for (const std::string& name : reader.names()) tensors.emplace_back(name, reader.read(name));
  const std::string found = checksum_of(metadata, std::move(tensors));
  return found == recorded->second ? ""
                                   : "is damaged: its checksum is " + found + ", and " +
                                         recorded->second.substr(0, 80) + " when it was written";
}

}  // namespace

std::map<std::string, std::string> feature_identity(const model::Target& target,
                                                    const std::string& data_hash) {
  return {{"target", target.fingerprint()},
          {"data", data_hash},
          {"dtype", model::dtype_name(target.dtype())},
          {"kernels", target.device().is_cpu() ? kernels::to_string(kernels::cpu_path()) : "cuda"}};
}

std::vector<model::Features> FeatureFile::read(int64_t samples, int64_t hidden, at::ScalarType dtype) const {
  const auto reader = data::SafetensorsReader::open(path);
  const auto refuse = [&](const std::string& what) {
    throw data::InputError(path.string() + " " + what + ": remove it, or give another --feature-file.");
  };
  for (const auto& [name, value] : identity) {
    const auto found = reader.metadata().find(name);
    if (found == reader.metadata().end()) refuse("is no file of features");
    if (found->second != value && (name != "target" || found->second != sampled_target))
      refuse("holds features of another " + name + " (" + found->second + ", not " + value + ")");
  }
  if (const std::string what = why_damaged(reader, identity); !what.empty()) refuse(what);
  const auto recorded = reader.metadata().find(layers_key);
  const std::string tapped = recorded == reader.metadata().end() ? "" : recorded->second;
  if (!layers.empty() && tapped != comma_separated(layers))
    refuse("holds features of " + (tapped.empty() ? "no lower layers" : "layers " + tapped) + " (not " +
           comma_separated(layers) + ")");
  const at::Tensor rows = reader.read("rows", {samples});
  if (rows.scalar_type() != at::kLong) refuse("has \"rows\" that are no int64");
  int64_t total_rows = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t count = rows.const_data_ptr<int64_t>()[i];
    if (count < 0 || count > INT32_MAX) refuse("has a sample of " + std::to_string(count) + " rows");
    total_rows += count;
  }
  model::Features concatenated{reader.read("pre_norm", {total_rows, hidden}),
                               reader.read("post_norm", {total_rows, hidden})};
  if (!layers.empty()) concatenated.layers = reader.read("layers", {total_rows, hidden * std::ssize(layers)});
  for (const auto member : model::feature_members) {
    if ((concatenated.*member).defined() && (concatenated.*member).scalar_type() != dtype)
      refuse("has features that are not in the target's dtype");
  }
  std::vector<model::Features> by_sample(samples);
  int64_t begin = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t count = rows.const_data_ptr<int64_t>()[i];
    if (count > 0) by_sample[i] = concatenated.slice(begin, begin + count);
    begin += count;
  }
  return by_sample;
}

void FeatureFile::write(const std::vector<model::Features>& by_sample) const {
  std::vector<model::Features> non_empty;
  at::Tensor rows = at::empty({std::ssize(by_sample)}, at::kLong);
  for (size_t i = 0; i < by_sample.size(); ++i) {
    rows.data_ptr<int64_t>()[i] = by_sample[i].size();
    if (by_sample[i].size() > 0) non_empty.push_back(by_sample[i]);
  }
  const model::Features concatenated = model::Features::concatenated(non_empty);
  data::NamedTensors tensors{
      {"rows", rows}, {"pre_norm", concatenated.pre_norm}, {"post_norm", concatenated.post_norm}};
  Metadata metadata = identity;
  if (!layers.empty()) {
    tensors.emplace_back("layers", concatenated.layers);
    metadata[layers_key] = comma_separated(layers);
  }
  metadata[checksum_key] = checksum_of(metadata, tensors);
  data::write_safetensors(path, tensors, metadata);
}

}  // namespace clover::train
