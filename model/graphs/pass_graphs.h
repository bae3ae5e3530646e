#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "model/cache/placement.h"
#include "model/graphs/recorder.h"
#include "model/target/target.h"

namespace clover::model {

/// Passes of a target on one cache.  On a GPU each shape of decode pass is recorded as a graph and replayed
/// (Recorder).  A pass has the same bits with and without: rows are padded to the recorded number, and no row
/// depends on others.
class PassGraphs {
 public:
  /// `most_sequences` a pass.  All are borrowed; where `recorder` is not enabled every pass is
  /// `Target::forward`.
  PassGraphs(const Target& target, KvCache& cache, int64_t most_sequences, Recorder& recorder)
      : target_(target), cache_(cache), most_sequences_(most_sequences), recorder_(recorder) {}

  /// As `Target::forward`.  What it returns is overwritten by the next pass.  `first_ids`, i64 [n] on the
  /// device: of the first n rows, which the batch does not know; below 0 stands for 0.
  TargetOutput forward(const RowBatch& batch, const FeatureTaps& taps, const at::Tensor& first_ids = {});

  /// Whether the last pass took as long as its next ones will: it was no first one of its shape.
  bool settled() const { return settled_; }

 private:
  struct Recorded {
    PaddedInputs inputs;
    TargetOutput output;
    Recorder::Work work{kernels::Graph::Pool::passes};
  };
  using Key = std::tuple<int64_t, int64_t, FeatureTaps, bool>;  // rows, pages, taps, best_only

  PassShape shape_for(const PassInputs& inputs) const;
  TargetOutput replay(const PassShape& shape, const PassInputs& inputs, const FeatureTaps& taps,
                      const at::Tensor& first_ids);

  const Target& target_;
  KvCache& cache_;
  int64_t most_sequences_;
  Recorder& recorder_;
  bool settled_ = true;
  std::map<Key, Recorded> passes_;
};

}  // namespace clover::model
