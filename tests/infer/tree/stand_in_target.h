#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "infer/tree/candidate_tree.h"

// A target for tests of trees: its logits are drawn anew after each text.
namespace clover::infer {

using Path = std::vector<int64_t>;

/// The logits [vocab] after a text: normally distributed with standard deviation `spread`, and always the
/// same for the same `target` and text.
inline std::vector<float> logits_after(const Path& text, uint64_t target, int64_t vocab, float spread) {
  uint64_t mixed = target + 1;
  for (const int64_t id : text) mixed = (mixed ^ uint64_t(id + 3)) * 0x9E3779B97F4A7C15u;
  std::mt19937_64 random(mixed);
  std::normal_distribution<float> normal;
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = spread * normal(random);
  return logits;
}

/// The tokens from the root, which is the first, to `node`.
inline Path path_to(const CandidateTree& tree, int32_t node) {
  Path path;
  for (; node >= 0; node = tree.parent[node]) path.insert(path.begin(), tree.ids[node]);
  return path;
}

}  // namespace clover::infer
