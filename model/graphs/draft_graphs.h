#pragma once

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
#include "kernels/trees/tree_growth.h"
#include "model/cache/kv_cache.h"
#include "model/cache/placement.h"
#include "model/drafters/drafter.h"
#include "model/graphs/device_verification.h"
#include "model/graphs/graph_runner.h"
#include "model/graphs/guesses.h"
#include "model/target/target.h"

namespace clover::model {

/// Rows that a drafter reads before it guesses: the target's features, and the token after each.
struct DraftInput {
  std::vector<Features> parts;    // of R rows in order, on the target's device
  std::vector<int64_t> next_ids;  // [R]
  std::vector<Segment> segments;  // the R rows, by sequence: they continue what the drafter has read of it
};

/// How a tree grows behind each row of a frontier, the F rows to draft from.
struct Growth {
  struct Tree {
    int64_t most_nodes;  // the root included
    int64_t levels;      // 1 to the drafter's depth
    float least_joint;   // of a node's probability along the path
  };
  kernels::LevelRule rule;  // the same for all trees
  std::vector<Tree> trees;  // [F]
};

/// A drafter's guesses for many sequences at once: whole trees, or depth by depth.  On a GPU they are
/// captured as CUDA graphs (graph_runner.h decides when): a whole draft as one, or `prime` as one and each
/// further depth as another.  A guess has the same bits with and without: rows are padded to the captured
/// number, and no row depends on others.
class DraftGraphs {
 public:
  /// `drafter` is frozen; its own layers of `cache` begin at `first_layer`.  All are borrowed; where
  /// `graph_runner` is not enabled nothing is padded.
  DraftGraphs(Drafter& drafter, KvCache& cache, int64_t first_layer, GraphRunner& graph_runner);

  const Drafter& drafter() const { return drafter_; }

  /// A whole draft: the drafter reads `input`, then one tree or more grow: tree i behind row frontier[i].
  /// They come back on the CPU, maybe with others behind them.  Where the drafter reads its guesses, a GPU
  /// gives children to at most 16 nodes of a level, to fewer where there are more than 16 trees.
  kernels::GrowingTrees grow(const DraftInput& input, std::span<const int64_t> frontier,
                             const Growth& growth);

  /// The same on a GPU behind `trees`, which nobody has verified yet; `finish` waits for it.  The drafter
  /// reads the rows accepted there or, without layers of its own, the last one.  `input` has a segment for
  /// each tree that is drafted behind, in the order of `growth`: pending rows, whose features are
  /// input.parts, then the tree's range of drafter_rows, whose next_ids the GPU fills in.  Keys and values of
  /// all trees have then moved to where KvCache::commit expects them.
  void begin(const UnverifiedTrees& trees, const DraftInput& input, const Growth& growth);
  /// The trees of the last `begin`, and how long the GPU took for them.
  struct Grown {
    kernels::GrowingTrees trees;
    double seconds;
  };
  Grown finish();

  /// Begins a draft depth by depth: the drafter reads `input` and makes its `width` best guesses,
  /// head(0).size() at most, at each row of the frontier.  On the CPU.
  Guesses prime(const DraftInput& input, std::span<const int64_t> frontier, int64_t width);

  /// One token deeper: row j continues row parents[j] of the last call with token ids[j].
  Guesses extend(std::span<const int64_t> parents, std::span<const int64_t> ids, int64_t width);

  /// Whether the last draft was warm: took as long as later ones of its shape, because its kernels were
  /// loaded and nothing was captured.
  bool warm() const { return warm_; }
  double seconds() const { return seconds_; }  // of all calls so far, `begin` apart

 private:
  /// Work that begins with a DraftInput of one shape: a whole draft, or its first depth.
  struct Primed {
    PaddedInputs inputs;
    at::Tensor results;  // trees or guesses, packed, on the device
    GraphRunner::Work work{kernels::Graph::Pool::drafts};
  };
  struct Extended {
    at::Tensor inputs;  // i64 [2, F]: parents, ids
    at::Tensor guesses;
    GraphRunner::Work work{kernels::Graph::Pool::drafts};
  };

  /// What a draft of whole trees is captured for, besides the shape of its inputs.
  struct GrowthShape {
    int64_t nodes, levels, most_live;
    kernels::LevelRule rule;
  };
  // Rows, pages, frontier; nodes, levels, live nodes, width; top-p, relative cut.
  using GrownKey = std::tuple<std::array<int64_t, 3>, std::array<int64_t, 4>, std::array<float, 2>>;
  using PrimedKey = std::tuple<std::array<int64_t, 3>, int64_t>;  // the same three, width

  /// Gathers the features of the rows that the drafter reads, given the inputs on the device: into the fixed
  /// place that graphs read, padded to `rows`, or with 0 where they come to lie.
  using Source = std::function<Features(const PassInputs& on_device, int64_t rows)>;
  struct InFlight {
    kernels::PendingCopy trees;
    std::unique_ptr<kernels::GpuEvent> launched;
    int64_t nodes = 0;
    bool warm = true;
  };

  PassInputs inputs_of(const DraftInput& input, std::span<const int64_t> frontier, int64_t room = 0);
  PassShape shape_for(const PassInputs& inputs) const;
  bool captures(const PassInputs& inputs) const;
  Source source_of(const DraftInput& input);
  Source source_of(const UnverifiedTrees& trees, const DraftInput& input, DeviceVerification& verification);
  Features in_place(int64_t rows, const Features& like,
                    const std::function<void(at::Tensor Features::*of, at::Tensor& place)>& fill);
  at::Tensor grow_on_device(const Source& source, PassInputs inputs, const Growth& growth,
                            const GrowthShape& shape);
  GrowthShape shape_of(const Growth& growth) const;
  /// Slots behind each sequence for rows that the drafter writes while its tree grows.
  int64_t room_for(const GrowthShape& shape) const;
  at::Tensor grown(const Features& features, const PassInputs& on_device, const GrowthShape& shape);
  /// body(features, inputs on the device), captured under `key` in its shape.
  template <class Key, class Body>
  at::Tensor replay(std::map<Key, Primed>& entries, const Key& key, const Source& source,
                    const PassInputs& inputs, const Body& body);
  at::Tensor replay_growth(const Source& source, const PassInputs& inputs, const GrowthShape& shape);
  // Each returns guesses on the device, packed.
  at::Tensor first(const Features& features, const PassInputs& on_device, int64_t width);
  at::Tensor next(const DraftState& state, const at::Tensor& parents_and_ids, int64_t width);
  at::Tensor replay_first(const Source& source, const PassInputs& inputs, int64_t width);
  at::Tensor replay_next(const at::Tensor& parents_and_ids, int64_t width);
  void keep(const DraftState& state);
  bool kept_in_place() const;
  int64_t captured_width(int64_t width, int64_t depth) const;

  Drafter& drafter_;
  KvCache& cache_;
  int64_t first_layer_;
  GraphRunner& graph_runner_;
  std::optional<RotaryTable> rotary_;  // of the drafter's layers, where their rotation is not the target's
  // Where graphs read and write what one hands to the next, for most_captured_rows rows: features, and states
  // [.., H] of two depths in turn.
  Features features_;
  std::array<at::Tensor, 2> places_;
  DraftState state_;  // after the last call
  InFlight in_flight_;
  bool warm_ = true;
  double seconds_ = 0;
  std::map<GrownKey, Primed> grown_;
  std::map<PrimedKey, Primed> primed_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, Extended> extended_;  // depth, rows, width
};

}  // namespace clover::model
