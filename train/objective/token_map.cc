#include "train/objective/token_map.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

#include "data/files/error.h"

namespace clover::train {

at::Tensor frequent_tokens(const data::TokenStore& store, int64_t size, int64_t vocab) {
  if (size <= 0 || size >= vocab) return {};
  std::vector<int64_t> count(vocab, 0);  // by token id: how often it is supervised
  for (int64_t index = 0; index < store.size(data::Split::train); ++index) {
    const auto sample = store.sample(data::Split::train, index);
    for (size_t t = 0; t < sample.ids.size(); ++t) {
      if (sample.ids[t] >= vocab) {
        throw data::InputError("The token store holds the id " + std::to_string(sample.ids[t]) +
                               ", but the target's vocabulary has " + std::to_string(vocab) +
                               " tokens: prepare the data with this target.");
      }
      count[sample.ids[t]] += sample.supervised[t];
    }
  }
  std::vector<int64_t> ids(vocab);
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int64_t a, int64_t b) { return count[a] > count[b]; });
  std::sort(ids.begin(), ids.begin() + size);
  at::Tensor map = at::empty({size}, at::kLong);
  std::copy_n(ids.begin(), size, map.data_ptr<int64_t>());
  return map;
}

LabelMap::LabelMap(const at::Tensor& token_map, int64_t vocab) : index_(vocab, -1) {
  if (!token_map.defined()) {
    std::iota(index_.begin(), index_.end(), 0);
    return;
  }
  const at::Tensor on_host = token_map.cpu();
  const int64_t* ids = on_host.const_data_ptr<int64_t>();
  for (int64_t index = 0; index < token_map.numel(); ++index) index_.at(ids[index]) = index;
}

}  // namespace clover::train
