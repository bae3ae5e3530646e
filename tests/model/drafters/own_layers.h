#pragma once

#include <optional>

#include "model/drafters/drafter.h"

namespace clover::test {

/// What a drafter needs of the cache to read `segment` and to draft behind it.
inline model::DraftKv own_layers(const model::Drafter& drafter, model::KvCache& cache, int64_t first_layer,
                                 const model::Segment& segment) {
  std::optional<model::RotaryTable> own;
  if (const model::Rope* rope = drafter.own_rope()) own.emplace(rope->rotation(cache.shape().head_dim));
  const int64_t guess_slots = drafter.writes_guesses() ? drafter.max_depth() : 0;
  return {&cache, first_layer, cache.place({&segment, 1}, guess_slots, own ? &*own : nullptr), guess_slots};
}

}  // namespace clover::test
