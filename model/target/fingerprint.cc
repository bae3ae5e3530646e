#include "model/target/fingerprint.h"

#include <ATen/ATen.h>
#include <c10/util/BFloat16.h>

#include <algorithm>

#include "kernels/cpu/threads.h"

namespace clover::model {
namespace {

constexpr int64_t values_per_part = int64_t{1}
                                    << 16;  // hashed by one thread; 128 KiB in bf16 fit in a core's cache

std::string_view bytes_of(const void* values, int64_t count, size_t size) {
  return {static_cast<const char*>(values), static_cast<size_t>(count) * size};
}

/// The hash of `count` values, rounded to bf16.
template <class T>
uint64_t hash_rounded(const T* values, int64_t count, uint64_t seed) {
  std::vector<c10::BFloat16> rounded(count);
  for (int64_t i = 0; i < count; ++i) rounded[i] = c10::BFloat16(static_cast<float>(values[i]));
  return data::xxh64(bytes_of(rounded.data(), count, sizeof(c10::BFloat16)), seed);
}

/// The hash of `count` values of `flat` from index `begin` on, rounded to bf16.
uint64_t hash_part(const at::Tensor& flat, int64_t begin, int64_t count) {
  const uint64_t seed = static_cast<uint64_t>(begin);
  switch (flat.scalar_type()) {
    case at::kBFloat16:
      return data::xxh64(bytes_of(flat.const_data_ptr<c10::BFloat16>() + begin, count, sizeof(c10::BFloat16)),
                         seed);
    case at::kHalf:
      return hash_rounded(flat.const_data_ptr<c10::Half>() + begin, count, seed);
    case at::kFloat:
      return hash_rounded(flat.const_data_ptr<float>() + begin, count, seed);
    default:
      return hash_rounded(flat.const_data_ptr<double>() + begin, count, seed);
  }
}

/// The hash of a tensor's values: a hash of the hashes of its parts, which threads compute in parallel.
uint64_t hash_values(const at::Tensor& flat) {
  const int64_t count = flat.numel(), parts = (count + values_per_part - 1) / values_per_part;
  std::vector<uint64_t> hashes(parts);
  kernels::parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t first = part * values_per_part;
      hashes[part] = hash_part(flat, first, std::min(values_per_part, count - first));
    }
  });
  return data::xxh64(bytes_of(hashes.data(), parts, sizeof(uint64_t)), static_cast<uint64_t>(count));
}

}  // namespace

void Fingerprint::add(const std::string& name, const at::Tensor& tensor, bool in_sampled) {
  const at::Tensor flat = tensor.reshape({-1});
  std::string name_and_shape = name;
  for (const int64_t size : tensor.sizes()) name_and_shape += "," + std::to_string(size);
  all_values_ = data::xxh64(name_and_shape, all_values_);
  const uint64_t values = hash_values(flat);
  all_values_ = data::xxh64(bytes_of(&values, 1, sizeof values), all_values_);
  if (!in_sampled) return;
  constexpr int64_t min_samples = 1024;
  const int64_t stride = std::max<int64_t>(1, flat.numel() / min_samples);
  const at::Tensor sample = flat.slice(0, 0, flat.numel(), stride).to(at::kBFloat16).contiguous();
  sampled_values_ = data::fnv1a(name_and_shape, sampled_values_);
  sampled_values_ =
      data::fnv1a(bytes_of(sample.const_data_ptr(), sample.numel(), sizeof(c10::BFloat16)), sampled_values_);
}

}  // namespace clover::model
