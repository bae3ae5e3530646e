#include "model/target/weight_source.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>

#include "data/files/error.h"

namespace clover::model {

using data::InputError;

FolderWeights::FolderWeights(const std::filesystem::path& folder, at::ScalarType dtype, at::Device device)
    : WeightSource(dtype, device), folder_(folder), reader_(data::SafetensorsReader::open(folder)) {}

void FolderWeights::resolve_tied_head(TargetConfig& config) {
  const std::string embedding = stored_name(embedding_name), head = stored_name(head_name);
  const bool has_embedding = reader_.contains(embedding), has_head = reader_.contains(head);
  if (config.tie_unstated) config.tied_head = !has_head;
  if (!config.tied_head && !has_head) {
    throw InputError(folder_.string() +
                     ": tensor lm_head.weight is missing, and config.json says that it is not the "
                     "embedding (\"tie_word_embeddings\" false); expected the tensor, or true.");
  }
  if (!config.tied_head || !has_head) return;
  read_.insert(head);
  if (!has_embedding) {
    stored_as_[embedding_name] = head;
  } else if (!same(reader_.read(embedding), reader_.read(head))) {
    config.tied_head = false;
    untied_despite_config_ = true;
    config.notes.push_back(folder_.string() +
                           ": lm_head.weight is not the embedding, and is used, though config.json "
                           "says \"tie_word_embeddings\" true");
  }
}

void FolderWeights::check_all_read(const std::string& family) const {
  for (const std::string& name : reader_.names()) {
    if (read_.contains(name) || name.ends_with("rotary_emb.inv_freq")) continue;
    throw InputError(folder_.string() + ": tensor " + name + " is not part of a " + family +
                     " model; the folder and its config.json do not belong together.");
  }
}

at::Tensor FolderWeights::read(const std::string& name, at::IntArrayRef shape) {
  const std::string stored = stored_name(name);
  const at::Tensor tensor = reader_.read(stored, shape);
  if (!tensor.is_floating_point() || tensor.element_size() < 2) {
    throw InputError(folder_.string() + ": tensor " + name + " is " + c10::toString(tensor.scalar_type()) +
                     ", expected bfloat16, float16 or float32.");
  }
  read_.insert(stored);
  fingerprint_.add(name, tensor, /*in_sampled=*/!(untied_despite_config_ && name == head_name));
  return tensor;
}

std::string FolderWeights::stored_name(const std::string& name) const {
  if (const auto found = stored_as_.find(name); found != stored_as_.end()) return found->second;
  const std::string network = "model.";
  const std::string other = name.starts_with(network) ? name.substr(network.size()) : network + name;
  return !reader_.contains(name) && reader_.contains(other) ? other : name;
}

bool FolderWeights::same(const at::Tensor& one, const at::Tensor& other) const {
  return one.sizes() == other.sizes() && at::equal(one.to(dtype()), other.to(dtype()));
}

RandomWeights::RandomWeights(at::ScalarType dtype, at::Device device) : WeightSource(dtype, device) {
  at::Generator generator = at::detail::createCPUGenerator(0);
  buffer_ = at::empty({int64_t{1} << 20}, at::kFloat).uniform_(-1.7, 1.7, generator).to(dtype);
}

at::Tensor RandomWeights::read(const std::string& name, at::IntArrayRef shape) {
  if (shape.size() == 1) return at::full(shape, name.ends_with(".bias") ? 0 : 1, at::kFloat);
  const at::Tensor scaled = buffer_ / std::sqrt(static_cast<double>(shape[1]));
  at::Tensor matrix = at::empty(shape, buffer_.options());
  const at::Tensor flat = matrix.view({-1});
  for (int64_t done = 0; done < flat.numel();) {
    const int64_t begin = (7919 * ++cuts_) % (buffer_.numel() / 2);
    const int64_t count = std::min(flat.numel() - done, buffer_.numel() - begin);
    flat.narrow(0, done, count).copy_(scaled.narrow(0, begin, count));
    done += count;
  }
  return matrix;
}

}  // namespace clover::model
