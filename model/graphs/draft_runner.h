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

/// The R rows that a drafter reads before it guesses: the target's features, and the token after each row.
struct DraftInput {
  std::vector<Features> parts;    // of the R rows, in order, on the target's device
  std::vector<int64_t> next_ids;  // [R]
  std::vector<Segment> segments;  // the R rows, by sequence; each continues what the drafter has read of it
};

/// The smallest number of nodes that a GPU reserves for a tree; larger ones are powers of two.
constexpr int64_t min_tree_capacity = 8;
/// How many guesses of one tree a drafter may write to the cache (Drafter::writes_guesses): the live nodes of
/// all levels but the last.  `live`: the most live nodes that a level may have; `nodes`: nodes of the tree,
/// the root included.
constexpr int64_t max_guesses_written(int64_t levels, int64_t live, int64_t nodes) {
  return std::min((levels - 1) * live, nodes - 1);
}

/// How one tree grows from each of the F frontier rows.  A live node is one that gets children.
struct Growth {
  /// Bounds of one tree.
  struct TreeLimits {
    int64_t max_nodes;            // while it grows, the root included
    int64_t levels;               // 1 or more, at most the depth that the drafter can guess
    float min_joint_probability;  // nodes whose path is less probable are left out
    /// How many nodes remain at the end at most, the root included.  Only LevelRule::best_so_far and
    /// Growth::select use it.
    int64_t max_kept = 0;
    std::vector<kernels::PlannedNode> plan{};  // [max_nodes] the tree's shape; all trees have one, or none
  };
  // The same for all trees:
  kernels::LevelRule level_rule;
  std::vector<TreeLimits> limits;  // [F]
  // Levels of the deepest tree that the policy grows.  A GPU computes that many levels for all trees.
  int64_t levels = 1;
  int64_t max_live = 0;      // live nodes of a level; 0: as many as the device computes efficiently
  int64_t softmax_over = 0;  // as in guesses_of (guesses.h)
  std::optional<kernels::SelectRule> select{};  // which nodes remain at the end; nullopt: all
};

/// Grows trees of a drafter's guesses for many sequences at once.  On a GPU a whole draft is captured as one
/// CUDA graph (graph_runner.h).  Results are the same bits with and without graphs: rows are padded to the
/// captured number, and no row depends on other rows.
class DraftRunner {
 public:
  /// `drafter` is frozen; its own layers in `cache` begin at `first_layer`.  Keeps references to the
  /// arguments.  If `graph_runner` is not enabled, nothing is padded.
  DraftRunner(Drafter& drafter, KvCache& cache, int64_t first_layer, GraphRunner& graph_runner);

  const Drafter& drafter() const { return drafter_; }

  /// A whole draft: the drafter reads `input`, then tree i grows from row frontier[i].  Returns the trees on
  /// the CPU, with joint probabilities as scores.  After the F trees there may be some of padding rows, which
  /// the caller ignores.  If the drafter is autoregressive and Growth::max_live is 0, a level on a GPU has at
  /// most 16 live nodes, and fewer for more than 16 trees.
  kernels::GrowingTrees grow(const DraftInput& input, std::span<const int64_t> frontier,
                             const Growth& growth);

  /// Begins a draft on a GPU after a pass whose trees are still unverified, without waiting for the pass.
  /// wait_for_trees returns the new trees.
  /// The drafter reads the rows that the GPU accepts or, if it has no layers of its own, the last of them.
  /// `input` has a segment for each new tree, in the order of `growth`.  A segment's rows are first pending
  /// ones, whose features are input.parts, then the tree's range of UnverifiedTrees::drafter_rows, whose
  /// next_ids the GPU fills in.  The draft also moves keys and values of the accepted rows to where
  /// KvCache::commit expects them.
  /// Not for a drafter that writes guesses to the cache: their slots would follow rows that may be rejected.
  void grow_ahead(const UnverifiedTrees& unverified, const DraftInput& input, const Growth& growth);
  struct TimedTrees {
    kernels::GrowingTrees trees;
    double seconds;  // that the GPU took for the draft
  };
  /// Waits for the trees of the last grow_ahead.
  TimedTrees wait_for_trees();

  /// The drafter reads `input`, and no tree grows.  Returns its state at the rows `frontier`, on the device.
  DraftState read(const DraftInput& input, std::span<const int64_t> frontier = {});

  /// Whether the last draft was warm: its kernels were loaded already and nothing was captured, so later
  /// drafts of its shape take as long.
  bool warm() const { return warm_; }
  double seconds() const { return seconds_; }  // spent in all calls so far but grow_ahead

 private:
  /// The graph of drafts of one shape.
  struct Captured {
    PaddedInputs inputs;
    at::Tensor results;  // u8, trees packed (trees_in in draft_runner.cc), on the device
    GraphRunner::Work work{kernels::Graph::Pool::drafts};
  };

  /// What distinguishes captured drafts, besides the shape of their inputs.
  struct GrowthShape {
    int64_t nodes;         // capacity of a tree while it grows, the root included
    int64_t levels;        // of the deepest tree
    int64_t max_live;      // live nodes of a level of a tree
    int64_t softmax_over;  // as in guesses_of
    int64_t plan_nodes;    // capacity of each tree's plan; 0: no plans
    int64_t kept_nodes;    // capacity for the nodes of a tree that remain at the end
    kernels::LevelRule level_rule;
    std::optional<kernels::SelectRule> select;
  };
  /// Rows, pages and frontier rows of the inputs, then all of a GrowthShape.
  using Key = std::tuple<std::array<int64_t, 3>, std::array<int64_t, 11>, std::array<float, 2>>;
  static Key key_of(const PassShape& inputs, const GrowthShape& shape);

  /// Returns the features that the drafter reads; if trees are unverified, launches their verification first.
  /// `rows` > 0: in the buffer that graphs read, padded to so many rows.  `rows` = 0: anywhere.
  using GatherFeatures = std::function<Features(const PassInputs& on_device, int64_t rows)>;
  /// The draft that grow_ahead has begun.
  struct InFlight {
    kernels::PendingCopy trees;  // u8, packed
    std::unique_ptr<kernels::GpuEvent> launched;
    int64_t tree_capacity = 0;  // nodes of a tree
    bool warm = true;
  };

  /// What a draft reads besides weights and cache, on the CPU; without PassInputs::trees.
  PassInputs inputs_of(const DraftInput& input, std::span<const int64_t> frontier, int64_t guess_slots = 0);
  PassShape padded_shape_of(const PassInputs& inputs) const;
  bool can_capture(const PassInputs& inputs, const GrowthShape& shape) const;
  GatherFeatures gatherer_of(const DraftInput& input);
  GatherFeatures gatherer_of(const UnverifiedTrees& unverified, const DraftInput& input,
                             DeviceVerification& verification);
  Features in_graph_buffer(int64_t rows, const Features& like,
                           const std::function<void(at::Tensor Features::*member, at::Tensor& buffer)>& fill);
  /// Runs a draft, by a graph if can_capture.  Returns its trees packed, u8 on the device.
  at::Tensor grow_on_device(const GatherFeatures& gather, PassInputs inputs, const Growth& growth,
                            const GrowthShape& shape);
  /// The sizes that hold all trees of `growth`; on a GPU padded, so that few shapes are captured.
  GrowthShape growth_shape_of(const Growth& growth) const;
  at::Tensor initial_trees(const Growth& growth, const GrowthShape& shape) const;
  /// Cache slots after each sequence for the guesses that the drafter writes while its tree grows.
  int64_t guess_slots_for(const GrowthShape& shape) const;
  at::Tensor run_draft(const Features& features, const PassInputs& on_device, const GrowthShape& shape);
  at::Tensor replay(const GatherFeatures& gather, const PassInputs& inputs, const GrowthShape& shape);

  Drafter& drafter_;
  KvCache& cache_;
  int64_t first_layer_;
  GraphRunner& graph_runner_;
  std::optional<RotaryTable> rotary_;  // of the drafter's layers, if they rotate otherwise than the target's
  Features features_;                  // the buffer that graphs read, [max_captured_rows, ..]
  InFlight in_flight_;
  bool warm_ = true;
  double seconds_ = 0;
  std::map<Key, Captured> captured_;
};

}  // namespace clover::model
