#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "model/cache/placement.h"
#include "model/graphs/graph_runner.h"
#include "model/target/target.h"

namespace clover::model {

/// Passes of a target on one cache.  On a GPU each shape of decode pass is captured as a CUDA graph and
/// replayed: graph_runner.h decides when.  A pass has the same bits with and without: rows are padded to the
/// captured number, and no row depends on others.
class PassGraphs {
 public:
  /// `most_sequences` a pass.  All are borrowed; where `graph_runner` is not enabled every pass is
  /// `Target::forward`.
  PassGraphs(const Target& target, KvCache& cache, int64_t most_sequences, GraphRunner& graph_runner)
      : target_(target), cache_(cache), most_sequences_(most_sequences), graph_runner_(graph_runner) {}

  /// As `Target::forward`; the next pass overwrites what it returns.  `first_ids`, i64 [n] on the device,
  /// takes the place of the first n of batch.ids; ids below 0 count as 0.
  TargetOutput forward(const RowBatch& batch, const FeatureTaps& taps, const at::Tensor& first_ids = {});

  /// Whether the last pass was warm: took as long as later ones of its shape, because its kernels were loaded
  /// and nothing was captured.
  bool warm() const { return warm_; }

 private:
  struct Captured {
    PaddedInputs inputs;
    TargetOutput output;
    GraphRunner::Work work{kernels::Graph::Pool::passes};
  };
  using Key = std::tuple<int64_t, int64_t, FeatureTaps, bool>;  // rows, pages, taps, best_only

  PassShape shape_for(const PassInputs& inputs) const;
  TargetOutput replay(const PassShape& shape, const PassInputs& inputs, const FeatureTaps& taps,
                      const at::Tensor& first_ids);

  const Target& target_;
  KvCache& cache_;
  int64_t most_sequences_;
  GraphRunner& graph_runner_;
  bool warm_ = true;
  std::map<Key, Captured> passes_;
};

}  // namespace clover::model
