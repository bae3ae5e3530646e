#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "data/training/token_store.h"

namespace clover::train {

/// The draft vocabulary: the `size` tokens that are supervised most often in the training split, i64 [size]
/// ascending. Ties go to the lower id; if fewer tokens occur, the lowest other ids fill it up.  Undefined,
/// meaning the whole vocabulary, for size 0 or size >= vocab.  InputError when the store holds an id outside
/// the vocabulary.
at::Tensor frequent_tokens(const data::TokenStore& store, int64_t size, int64_t vocab);

/// Maps a token id to its index in the draft vocabulary.
class LabelMap {
 public:
  /// token_map: i64 [V'] ascending, or undefined for the whole vocabulary.
  LabelMap(const at::Tensor& token_map, int64_t vocab);

  int64_t index_of(int64_t id) const { return index_[id]; }  // -1: not in the draft vocabulary
  int64_t vocab() const { return static_cast<int64_t>(index_.size()); }

 private:
  std::vector<int64_t> index_;  // [V]
};

}  // namespace clover::train
