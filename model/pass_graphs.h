#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "kernels/graph.h"
#include "model/placement.h"
#include "model/target.h"

namespace clover::model {

/// Passes of a target on one cache.  On a GPU each shape of decode pass is recorded as a graph when it is
/// asked for a second time, and replayed from then on: starting its hundreds of kernels one by one takes
/// longer than a small model needs to run them.  A pass has the same bits with and without: rows are padded
/// to the recorded number, and no row depends on others.
class PassGraphs {
 public:
  /// `most_sequences` a pass.  Not `enabled`, or on the CPU: every pass is `Target::forward`.
  PassGraphs(const Target& target, KvCache& cache, int64_t most_sequences, bool enabled);

  /// As `Target::forward`.  What it returns is overwritten by the next pass.
  TargetOutput forward(const RowBatch& batch, const FeatureTaps& taps);

  /// Whether the last pass took as long as its next ones will: it was no first one of its shape.
  bool settled() const { return settled_; }
  int64_t recorded() const { return recorded_; }
  double seconds() const { return seconds_; }  // of recording
  int64_t bytes() const { return bytes_; }     // of the GPU, taken by it

 private:
  struct Recorded {
    PaddedInputs here;
    at::Tensor bytes;  // on the GPU: where the inputs go
    TargetOutput output;
    std::unique_ptr<kernels::Graph> graph;  // null until the shape is asked for again
  };
  using Key = std::tuple<int64_t, int64_t, bool, bool>;  // rows, pages, taps

  PassShape shape_for(const PassInputs& inputs) const;
  TargetOutput replay(const PassShape& shape, const PassInputs& inputs, const FeatureTaps& taps);
  /// False, and no shape is recorded any more, when the GPU has no memory for it.
  bool record(Recorded& entry, const FeatureTaps& taps);

  const Target& target_;
  KvCache& cache_;
  int64_t most_sequences_;
  bool enabled_;
  bool settled_ = true;
  std::map<Key, Recorded> passes_;
  int64_t recorded_ = 0;
  double seconds_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace clover::model
