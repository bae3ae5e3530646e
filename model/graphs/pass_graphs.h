#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "model/cache/placement.h"
#include "model/graphs/graph_runner.h"
#include "model/target/target.h"

namespace clover::model {

/// Runs passes of a target on one cache.  On a GPU, decode passes are captured as CUDA graphs, one for each
/// shape, and replayed (graph_runner.h).  Results are the same bits with and without graphs: rows are padded
/// to the captured number, and no row depends on other rows.
class PassGraphs {
 public:
  /// `max_sequences`: of one pass.  Keeps references to the other arguments.  If `graph_runner` is not
  /// enabled, every pass is `Target::forward`.
  PassGraphs(const Target& target, KvCache& cache, int64_t max_sequences, GraphRunner& graph_runner)
      : target_(target), cache_(cache), max_sequences_(max_sequences), graph_runner_(graph_runner) {}

  /// As `Target::forward`, but the next call may overwrite the tensors that this one returns.  `first_ids`,
  /// i64 [n] on the device, replaces the first n of batch.ids; ids below 0 become 0.
  TargetOutput forward(const RowBatch& batch, const FeatureTaps& taps, const at::Tensor& first_ids = {});

  /// Whether the last pass was warm: its kernels were loaded already and nothing was captured, so later
  /// passes of its shape take as long.
  bool warm() const { return warm_; }

 private:
  /// A pass of one shape.
  struct Captured {
    PaddedInputs inputs;
    TargetOutput output;  // where the graph writes it; undefined before there is a graph
    GraphRunner::Work work{kernels::Graph::Pool::passes};
  };
  using Key = std::tuple<int64_t, int64_t, FeatureTaps, bool>;  // rows, pages, taps, arg_max_only

  PassShape shape_for(const PassInputs& inputs) const;
  TargetOutput replay(const PassShape& shape, const PassInputs& inputs, const FeatureTaps& taps,
                      const at::Tensor& first_ids);

  const Target& target_;
  KvCache& cache_;
  int64_t max_sequences_;
  GraphRunner& graph_runner_;
  bool warm_ = true;
  std::map<Key, Captured> passes_;
};

}  // namespace clover::model
