#pragma once

#include "infer/cost/cost_model.h"

namespace clover::infer {

inline int64_t nodes_of(const std::vector<CandidateTree>& trees) {
  int64_t nodes = 0;
  for (const CandidateTree& tree : trees) nodes += tree.size() - 1;
  return nodes;
}

// The contexts of a batch whose sequences all have `tokens` tokens.
inline std::vector<int64_t> contexts(int64_t sequences, int64_t tokens = 0) {
  return std::vector<int64_t>(sequences, tokens);
}

// A cost model that has measured `seconds(rows)` at the row counts of the engine's calibration.
template <class Seconds>
CostModel measured(Seconds seconds) {
  CostModel model;
  for (int64_t rows = 1; rows <= 64; rows *= 2) model.passes().observe(rows, 0, seconds(rows));
  return model;
}

}  // namespace clover::infer
