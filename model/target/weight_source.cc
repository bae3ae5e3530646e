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
  const std::string embedding = stored_name(embedding_name), head = stored_name(lm_head_name);
  const bool has_embedding = reader_.contains(embedding), has_head = reader_.contains(head);
  if (config.tie_unstated) config.tied_head = !has_head;
  if (!config.tied_head && !has_head) {
    throw InputError(folder_.string() +
                     ": tensor lm_head.weight is missing, and config.json says that it is not the "
                     "embedding (\"tie_word_embeddings\" false); expected the tensor, or true.");
  }
  if (!config.tied_head || !has_head) return;
  names_read_.insert(head);
  if (!has_embedding) {
    replacement_[embedding_name] = head;
  } else if (!are_equal(reader_.read(embedding), reader_.read(head))) {
    config.tied_head = false;
    untied_despite_config_ = true;
    config.notes.push_back(folder_.string() +
                           ": lm_head.weight is not the embedding, and is used, though config.json "
                           "says \"tie_word_embeddings\" true");
  }
}

void FolderWeights::check_all_read(const std::string& family) const {
  for (const std::string& name : reader_.names()) {
    if (names_read_.contains(name) || name.ends_with("rotary_emb.inv_freq")) continue;
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
  names_read_.insert(stored);
  fingerprint_.add(name, tensor, /*in_sampled=*/!(untied_despite_config_ && name == lm_head_name));
  return tensor;
}

std::string FolderWeights::stored_name(const std::string& name) const {
  if (const auto found = replacement_.find(name); found != replacement_.end()) return found->second;
  const std::string prefix = "model.";
  const std::string alternative = name.starts_with(prefix) ? name.substr(prefix.size()) : prefix + name;
  return !reader_.contains(name) && reader_.contains(alternative) ? alternative : name;
}

bool FolderWeights::are_equal(const at::Tensor& a, const at::Tensor& b) const {
  return a.sizes() == b.sizes() && at::equal(a.to(dtype()), b.to(dtype()));
}

RandomWeights::RandomWeights(at::ScalarType dtype, at::Device device) : WeightSource(dtype, device) {
  at::Generator generator = at::detail::createCPUGenerator(0);
  // Uniform numbers from -b to b have variance b^2 / 3.
  buffer_ = at::empty({int64_t{1} << 20}, at::kFloat).uniform_(-1.7, 1.7, generator).to(dtype);
}

at::Tensor RandomWeights::read(const std::string& name, at::IntArrayRef shape) {
  if (shape.size() == 1)  // a norm or a bias
    return at::full(shape, name.ends_with(".bias") ? 0 : 1, at::kFloat);
  const at::Tensor scaled = buffer_ / std::sqrt(static_cast<double>(shape[1]));
  at::Tensor matrix = at::empty(shape, buffer_.options());
  const at::Tensor flat = matrix.view({-1});
  for (int64_t filled = 0; filled < flat.numel();) {
    // 7919 is prime, so that cuts begin at different places for long.
    const int64_t begin = (7919 * ++cuts_) % (buffer_.numel() / 2);
    const int64_t count = std::min(flat.numel() - filled, buffer_.numel() - begin);
    flat.narrow(0, filled, count).copy_(scaled.narrow(0, begin, count));
    filled += count;
  }
  return matrix;
}

}  // namespace clover::model
