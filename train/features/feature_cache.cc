#include "train/features/feature_cache.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <numeric>

#include "kernels/gpu/gpu.h"

namespace clover::train {
namespace {

// The most rows of a pass of the target: enough for efficient matrix products, few enough for small
// activations.
constexpr int64_t pass_rows = 1024;
constexpr int64_t pass_sequences = 16;  // the most samples of a pass
constexpr int64_t page_size = 64;       // positions

model::KvCache make_kv_cache(const model::Target& target, int64_t longest_sample) {
  // It holds the rows of one pass, and the earlier rows of the one sample that began in a pass before.
  const int64_t pages = (pass_rows + longest_sample) / page_size + pass_sequences + 2;
  return {target.kv_shape(0), pages, page_size};
}

/// The rows of all parts in new memory.  A tensor may be undefined in some parts, if the drafter does not
/// read it.
model::Features concatenate(const std::vector<model::Features>& parts) {
  model::Features concatenated;
  for (const auto member : model::feature_members) {
    std::vector<at::Tensor> tensors;
    for (const auto& part : parts)
      if ((part.*member).defined()) tensors.push_back(part.*member);
    if (!tensors.empty()) concatenated.*member = at::cat(tensors);
  }
  return concatenated;
}

int64_t bytes_of(const model::Features& features) {
  int64_t bytes = 0;
  for (const auto member : model::feature_members) {
    const at::Tensor& tensor = features.*member;
    if (tensor.defined()) bytes += tensor.numel() * tensor.element_size();
  }
  return bytes;
}

}  // namespace

FeatureCache::FeatureCache(const model::Target& target, model::FeatureTaps wanted, int64_t longest_sample,
                           int64_t cache_bytes, FeatureOrigin origin)
    : target_(target),
      origin_(std::move(origin)),
      wanted_(wanted),
      taps_(wanted),
      longest_sample_(longest_sample),
      max_bytes_(cache_bytes) {}

void FeatureCache::retain_for_file(const std::vector<model::Features>& stored, int64_t samples,
                                   std::span<const int64_t> used_samples) {
  taps_.pre_norm = taps_.post_norm = true;
  for_file_ = true;
  max_bytes_ /= 2;  // the other half is for the copy that is written to the file
  cached_ = stored;
  cached_.resize(samples);
  complete_.assign(samples, 1);
  if (!stored.empty()) return;
  for (const int64_t sample : used_samples) complete_[sample] = 0;
}

const std::vector<model::Features>* FeatureCache::all_features(int64_t samples) const {
  const bool is_complete =
      std::ssize(complete_) == samples &&
      std::all_of(complete_.begin(), complete_.end(), [](char complete) { return complete != 0; });
  return is_complete && std::ssize(cached_) == samples ? &cached_ : nullptr;
}

model::Features FeatureCache::features_of(std::span<const data::TokenStore::Sample> samples,
                                          std::span<const int64_t> rows, std::span<const int64_t> keys,
                                          std::span<const int64_t> prompt_lengths) {
  std::vector<data::TokenStore::Sample> missing;
  std::vector<int64_t> missing_rows, missing_prompts;
  std::vector<size_t> missing_index;
  std::vector<model::Features> parts(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    const int64_t key = keys[i];
    if (key >= 0 && key < std::ssize(cached_) && cached_[key].size() >= std::max<int64_t>(rows[i], 1)) {
      parts[i] = cached_[key].slice(0, rows[i]);
    } else {
      missing.push_back(samples[i]);
      const int64_t length = static_cast<int64_t>(samples[i].ids.size());
      missing_rows.push_back(for_file_ && rows[i] > 0 ? std::min(rows[i] + 1, length) : rows[i]);
      missing_prompts.push_back(prompt_lengths.empty() ? 0 : prompt_lengths[i]);
      missing_index.push_back(i);
    }
  }
  const std::vector<model::Features> computed = compute(missing, missing_rows, missing_prompts);
  for (size_t m = 0; m < computed.size(); ++m) {
    if (missing_rows[m] > 0) parts[missing_index[m]] = computed[m].slice(0, rows[missing_index[m]]);
    insert(keys[missing_index[m]], computed[m]);
  }
  for (model::Features& part : parts) part = part.only(wanted_);
  model::Features concatenated = concatenate(parts);
  check_finite(concatenated, target_, origin_);
  for (const auto member : model::feature_members)
    if ((concatenated.*member).defined())
      concatenated.*member = kernels::to_device(concatenated.*member, target_.device());
  return concatenated;
}

void FeatureCache::insert(int64_t key, const model::Features& features) {
  const int64_t bytes = bytes_of(features);
  if (key < 0 || used_bytes_ + bytes > max_bytes_) return;
  if (key >= std::ssize(cached_)) cached_.resize(key + 1), complete_.resize(key + 1);
  used_bytes_ -= bytes_of(cached_[key]);
  cached_[key] = features;
  complete_[key] = 1;
  used_bytes_ += bytes;
}

std::vector<model::Features> FeatureCache::compute(std::span<const data::TokenStore::Sample> samples,
                                                   std::span<const int64_t> rows,
                                                   std::span<const int64_t> prompt_lengths) {
  // Rows of one sample in one pass.
  struct Piece {
    size_t sample;
    int32_t sequence;  // of kv_
    int64_t count;     // rows
  };
  std::vector<std::vector<model::Features>> pieces(samples.size());  // by sample, in order of rows
  model::RowBatch batch;                                             // rows of the next pass
  std::vector<Piece> pass;                                           // the same rows by sample
  std::vector<int32_t> finished;  // sequences whose last row is in this pass

  if (samples.empty()) return {};
  if (!kv_) kv_.emplace(make_kv_cache(target_, longest_sample_));
  model::KvCache& kv = *kv_;
  const auto run_pass = [&] {
    model::Features features = target_.forward(batch, kv, taps_).features;
    computed_rows_ += batch.size();
    for (const auto member : model::feature_members)
      if ((features.*member).defined()) features.*member = (features.*member).cpu();
    int64_t begin = 0;
    for (const Piece& piece : pass) {
      std::vector<int32_t> piece_rows(piece.count);
      std::iota(piece_rows.begin(), piece_rows.end(), 0);
      kv.keep_rows(piece.sequence, piece_rows, kv.shape().layers);
      // A copy, since a slice would keep the memory of the whole pass.
      pieces[piece.sample].push_back(concatenate({features.slice(begin, begin + piece.count)}));
      begin += piece.count;
    }
    for (const int32_t sequence : finished) kv.close(sequence);
    batch = {};
    pass.clear();
    finished.clear();
  };

  for (size_t s = 0; s < samples.size(); ++s) {
    if (rows[s] == 0) continue;
    const int32_t sequence = kv.open(prompt_lengths[s]);
    for (int64_t begin = 0; begin < rows[s];) {
      const int64_t count = std::min(rows[s] - begin, pass_rows - batch.size());
      for (int64_t t = begin; t < begin + count; ++t) {
        batch.add(samples[s].ids[t], sequence, t == begin ? -1 : static_cast<int32_t>(batch.size()) - 1);
      }
      pass.push_back({s, sequence, count});
      begin += count;
      if (begin == rows[s]) finished.push_back(sequence);
      if (batch.size() == pass_rows || static_cast<int64_t>(pass.size()) == pass_sequences) run_pass();
    }
  }
  if (batch.size() > 0) run_pass();

  std::vector<model::Features> result;
  for (const auto& parts : pieces) result.push_back(parts.size() == 1 ? parts[0] : concatenate(parts));
  return result;
}

}  // namespace clover::train
