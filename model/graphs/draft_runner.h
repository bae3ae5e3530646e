#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "kernels/gpu/gpu.h"
#include "kernels/trees/select_nodes.h"
#include "model/cache/kv_cache.h"
#include "model/cache/placement.h"
#include "model/drafters/drafter.h"
#include "model/graphs/device_verification.h"
#include "model/graphs/graph_runner.h"
#include "model/target/target.h"

namespace clover::model {

/// Rows that a drafter reads before it guesses: the target's features, and the token after each.
struct DraftInput {
  std::vector<Features> parts;    // of R rows in order, on the target's device
  std::vector<int64_t> next_ids;  // [R]
  std::vector<Segment> segments;  // the R rows, by sequence: they continue what the drafter has read of it
};

/// The least number of nodes that a GPU's tree has room for; larger ones are powers of two.
constexpr int64_t min_tree_room = 8;
/// The most guesses of one tree that a drafter writes to the cache (Drafter::writes_guesses): the live nodes
/// of all levels but the last.  `live`: live nodes of a level; `nodes`: of the tree, the root included.
constexpr int64_t max_guesses_written(int64_t levels, int64_t live, int64_t nodes) {
  return std::min((levels - 1) * live, nodes - 1);
}

/// How a tree grows behind each row of a frontier, the F rows to draft from.
struct Growth {
  struct TreeLimits {
    int64_t most_nodes;  // while it grows, the root included
    int64_t levels;      // 1 or more, no deeper than the drafter can guess
    float least_joint;   // of a node's probability along the path
    /// Most nodes that remain, the root included; read by LevelRule::best_so_far and by Growth::select.
    int64_t most_kept = 0;
    std::vector<kernels::PlannedNode> plan{};  // [most_nodes], for all trees or for none
  };
  // The same for all trees:
  kernels::LevelRule level_rule;
  std::vector<TreeLimits> limits;  // [F]
  int64_t levels = 1;              // of a tree that no limit cuts short
  int64_t most_live = 0;     // nodes of a level that get children; 0: as many as the device computes well
  int64_t softmax_over = 0;  // best guesses of a row that its probabilities sum to 1 over; 0: all
  std::optional<kernels::SelectRule> select{};  // which nodes remain at the end; none: all
};

/// A drafter's guesses for many sequences at once, as trees.  On a GPU a whole draft is captured as one CUDA
/// graph (graph_runner.h decides when).  A guess has the same bits with and without: rows are padded to the
/// captured number, and no row depends on others.
class DraftRunner {
 public:
  /// `drafter` is frozen; its own layers of `cache` begin at `first_layer`.  All are borrowed.  Where
  /// `graph_runner` is not enabled, rows and pages are not padded.
  DraftRunner(Drafter& drafter, KvCache& cache, int64_t first_layer, GraphRunner& graph_runner);

  const Drafter& drafter() const { return drafter_; }

  /// A whole draft: the drafter reads `input`, then one tree or more grow: tree i behind row frontier[i].
  /// They come back on the CPU, followed by trees of padding rows, if any, which the caller ignores; scores
  /// are joint probabilities.  Where the drafter reads its guesses and Growth::most_live is 0, a GPU gives
  /// children to at most 16 nodes of a level, to fewer where there are more than 16 trees.
  kernels::GrowingTrees grow(const DraftInput& input, std::span<const int64_t> frontier,
                             const Growth& growth);

  /// The same on a GPU behind `unverified` trees; `finish` waits for it.  Not for a drafter that writes its
  /// guesses: it needs slots behind rows of which nobody knows yet whether they are accepted.  The drafter
  /// reads the rows accepted there or, without layers of its own, the last one.  `input` has a segment for
  /// each tree that is drafted behind, in the order of `growth`: pending rows, whose features are
  /// input.parts, then the tree's range of drafter_rows, whose next_ids the GPU fills in.  Keys and values of
  /// all trees have then moved to where KvCache::commit expects them.
  void begin(const UnverifiedTrees& unverified, const DraftInput& input, const Growth& growth);
  /// The trees of the last `begin`, and how long the GPU took for them.
  struct TimedTrees {
    kernels::GrowingTrees trees;
    double seconds;
  };
  TimedTrees finish();

  /// The drafter reads `input` and nothing is drafted yet.  The state at the rows of `frontier`, on the
  /// device.
  DraftState read(const DraftInput& input, std::span<const int64_t> frontier = {});

  /// Whether the last draft was warm: took as long as later ones of its shape, because its kernels were
  /// loaded and nothing was captured.
  bool warm() const { return warm_; }
  double seconds() const { return seconds_; }  // of all calls so far, `begin` apart

 private:
  /// A draft of one shape.
  struct Captured {
    PaddedInputs inputs;
    at::Tensor results;  // trees, packed, on the device
    GraphRunner::Work work{kernels::Graph::Pool::drafts};
  };

  /// What a draft is captured for, besides the shape of its inputs.
  struct GrowthShape {
    int64_t nodes, levels, most_live, softmax_over;
    int64_t planned;    // room for nodes of each tree's plan; 0: no plans
    int64_t remaining;  // room for nodes that remain
    kernels::LevelRule level_rule;
    std::optional<kernels::SelectRule> select;
  };
  /// Rows, pages and frontier of the inputs; all of a GrowthShape.
  using Key = std::tuple<std::array<int64_t, 3>, std::array<int64_t, 11>, std::array<float, 2>>;
  static Key key_of(const PassShape& inputs, const GrowthShape& shape);

  /// Gathers the features that the drafter reads, and launches the verification first if the trees are
  /// unverified.  With `rows` > 0 they go to the fixed buffer of the graphs, padded to `rows`; with 0
  /// they lie in a new tensor or where they were.
  using GatherFeatures = std::function<Features(const PassInputs& on_device, int64_t rows)>;
  struct InFlight {
    kernels::PendingCopy trees;
    std::unique_ptr<kernels::GpuEvent> launched;
    int64_t tree_room = 0;  // nodes
    bool warm = true;
  };

  PassInputs inputs_of(const DraftInput& input, std::span<const int64_t> frontier, int64_t guess_slots = 0);
  PassShape shape_for(const PassInputs& inputs) const;
  bool captures(const PassInputs& inputs, const GrowthShape& shape) const;
  GatherFeatures gatherer_of(const DraftInput& input);
  GatherFeatures gatherer_of(const UnverifiedTrees& unverified, const DraftInput& input,
                             DeviceVerification& verification);
  Features in_place(int64_t rows, const Features& like,
                    const std::function<void(at::Tensor Features::*of, at::Tensor& place)>& fill);
  at::Tensor grow_on_device(const GatherFeatures& gather, PassInputs inputs, const Growth& growth,
                            const GrowthShape& shape);
  GrowthShape shape_of(const Growth& growth) const;
  at::Tensor first_states(const Growth& growth, const GrowthShape& shape) const;
  /// Slots behind each sequence for the guesses that the drafter writes while its tree grows.
  int64_t guess_slots_for(const GrowthShape& shape) const;
  at::Tensor run_draft(const Features& features, const PassInputs& on_device, const GrowthShape& shape);
  at::Tensor replay(const GatherFeatures& gather, const PassInputs& inputs, const GrowthShape& shape);

  Drafter& drafter_;
  KvCache& cache_;
  int64_t first_layer_;
  GraphRunner& graph_runner_;
  std::optional<RotaryTable> rotary_;  // of the drafter's layers, where their rotation is not the target's
  Features features_;                  // where graphs read them, of most_captured_rows rows
  InFlight in_flight_;
  bool warm_ = true;
  double seconds_ = 0;
  std::map<Key, Captured> captured_;
};

}  // namespace clover::model
