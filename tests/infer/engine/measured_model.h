#pragma once

#include "infer/cost/cost_model.h"

namespace clover::infer {

inline int64_t nodes_of(const std::vector<CandidateTree>& trees) {
  int64_t nodes = 0;
  for (const CandidateTree& tree : trees) nodes += tree.size() - 1;
  return nodes;
}

// Of each sequence of a batch, all alike.
inline std::vector<int64_t> contexts(int64_t sequences, int64_t tokens = 0) {
  return std::vector<int64_t>(sequences, tokens);
}

// A model that measured `seconds(rows)` at the counts that an engine's calibration visits.
template <class Seconds>
CostModel measured(Seconds seconds) {
  CostModel model;
  for (int64_t rows = 1; rows <= 64; rows *= 2) model.passes().observe(rows, 0, seconds(rows));
  return model;
}

}  // namespace clover::infer
