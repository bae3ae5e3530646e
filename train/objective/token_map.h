#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "data/training/token_store.h"

namespace clover::train {

/// The draft vocabulary, i64 [size] ascending: the ids of the `size` tokens that are supervised most often in
/// the training split.  Ties go to the lower id; if fewer tokens occur, the lowest other ids fill it up.
/// Undefined, which means the whole vocabulary, if `size` is 0 or at least `vocab`, the target's vocabulary
/// size.  InputError when the store holds an id outside the vocabulary.
at::Tensor frequent_tokens(const data::TokenStore& store, int64_t size, int64_t vocab);

/// Maps a token id to its index in the draft vocabulary.
class LabelMap {
 public:
  /// token_map: i64 [V'] ascending, or undefined for the whole vocabulary.  vocab: V, the target's.
  LabelMap(const at::Tensor& token_map, int64_t vocab);

  int64_t index_of(int64_t id) const { return index_[id]; }  // -1: not in the draft vocabulary

 private:
  std::vector<int64_t> index_;  // [V]: by token id
};

}  // namespace clover::train
