#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "kernels/gpu/gpu.h"
#include "kernels/trees/tree_growth.h"
#include "model/cache/kv_cache.h"
#include "model/cache/placement.h"
#include "model/drafters/drafter.h"
#include "model/graphs/guesses.h"
#include "model/graphs/judged_rows.h"
#include "model/graphs/recorder.h"
#include "model/target/target.h"

namespace clover::model {

/// Rows of the target's passes that a drafter has not seen yet, and the token after each.
struct SeenRows {
  std::vector<Features> parts;    // of all rows in order, [n, ..] each, on the target's device
  std::vector<int64_t> next_ids;  // [R]
  std::vector<Segment> segments;  // the rows in order
};

/// How a tree grows behind each row of a frontier.
struct Growth {
  struct Tree {
    int64_t most_nodes;  // the root included
    int64_t levels;      // 1 to the drafter's depth
    float least_joint;   // of a node's probability along the path
  };
  kernels::LevelRule rule;  // the same for all; the drafter says whether one row guesses for a tree
  std::vector<Tree> trees;  // [F]
};

/// A drafter's guesses for many sequences at once: whole trees, or depth by depth.  On a GPU what that needs
/// is recorded as graphs (Recorder): one with all of a draft, or one with all that `prime` does and one for
/// each further depth.  A guess has the same bits with and without: rows are padded to the recorded number,
/// and no row depends on others.
class DraftGraphs {
 public:
  /// `drafter` is frozen; its own layers of `cache` begin at `first_layer`.  All are borrowed; where
  /// `recorder` is not enabled nothing is padded.
  DraftGraphs(Drafter& drafter, KvCache& cache, int64_t first_layer, Recorder& recorder);

  const Drafter& drafter() const { return drafter_; }

  /// A whole draft: the drafter sees `seen`, whose rows continue what it has seen of their sequences, and
  /// tree i grows behind row frontier[i], level by level.  One tree or more; they come back on the CPU, maybe
  /// with others behind them.  On a GPU at most 16 nodes of a level have children, fewer in more trees
  /// than 16, where the drafter looks at the tokens it is given.
  kernels::GrowingTrees grow(const SeenRows& seen, std::span<const int64_t> frontier, const Growth& growth);

  /// The same on a GPU, behind trees of a pass that the CPU has not followed yet: the drafter sees what is
  /// accepted of them, or the last of it where it has no layers of its own.  A segment of `seen` for each
  /// tree that has a range among the rows judged, in the order of their places in the frontier, which is that
  /// of `growth`: its rows behind, whose features are `seen.parts` and whose tokens are known, then its
  /// range, of any token.  Keys and values of all trees have then moved to where KvCache::commit expects
  /// them.
  void begin(const JudgedRows& judged, const SeenRows& seen, const Growth& growth);
  /// The trees that the last `begin` grows, waited for, and how long the GPU took for them.
  struct Grown {
    kernels::GrowingTrees trees;
    double seconds;
  };
  Grown finish();

  /// Begins a draft depth by depth: the drafter sees `seen`, whose rows continue what it has seen of their
  /// sequences, and makes its `width` best guesses, head(0).size() at most, behind each of the rows
  /// `frontier`.  On the CPU.
  Guesses prime(const SeenRows& seen, std::span<const int64_t> frontier, int64_t width);

  /// One token deeper: row j continues row parents[j] of the last call with token ids[j].
  Guesses extend(std::span<const int64_t> parents, std::span<const int64_t> ids, int64_t width);

  /// Whether the last draft took as long as its next ones will: no call of it was a first one of its shape.
  bool settled() const { return settled_; }
  double seconds() const { return seconds_; }  // of all calls so far but `begin`

 private:
  /// What begins with rows seen, of one shape: all of a draft, or its first depth.
  struct Begun {
    PaddedInputs inputs;
    at::Tensor yields;  // trees or guesses, packed, on the device
    Recorder::Work work{kernels::Graph::Pool::drafts};
  };
  struct Extended {
    at::Tensor inputs;  // i64 [2, F]: parents, ids
    at::Tensor guesses;
    Recorder::Work work{kernels::Graph::Pool::drafts};
  };

  /// Of a draft of whole trees, besides what its inputs say.
  struct GrowthShape {
    int64_t nodes, levels, most_live;
    kernels::LevelRule rule;
  };
  // Rows, pages, frontier; nodes, levels, live nodes, width; top-p, relative cut.
  using GrownKey = std::tuple<std::array<int64_t, 3>, std::array<int64_t, 4>, std::array<float, 2>>;
  using PrimedKey = std::tuple<std::array<int64_t, 3>, int64_t>;  // the same three, width

  /// Features of the rows seen, whose inputs lie on the device, in a place of so many rows or, with 0, where
  /// they are.
  using Source = std::function<Features(const PassInputs& there, int64_t place)>;
  struct UnderWay {
    kernels::Arriving trees;
    std::unique_ptr<kernels::Moment> began;
    int64_t nodes = 0;
    bool settled = true;
  };

  PassInputs inputs_of(const SeenRows& seen, std::span<const int64_t> frontier);
  PassShape shape_for(const PassInputs& inputs) const;
  bool records(const PassInputs& inputs) const;
  Source source_of(const SeenRows& seen);
  Source source_of(const JudgedRows& judged, const SeenRows& seen, FollowedRows& followed);
  Features in_place(int64_t rows, const Features& like,
                    const std::function<void(at::Tensor Features::*of, at::Tensor& place)>& fill);
  at::Tensor grow_there(const Source& source, PassInputs inputs, const Growth& growth,
                        const GrowthShape& shape);
  GrowthShape shape_of(const Growth& growth) const;
  at::Tensor grown(const Features& features, const PassInputs& there, const GrowthShape& shape);
  /// body(features, inputs on the device), recorded under `key` in its shape.
  template <class Key, class Body>
  at::Tensor replay(std::map<Key, Begun>& begun, const Key& key, const Source& source,
                    const PassInputs& inputs, const Body& body);
  at::Tensor replay_growth(const Source& source, const PassInputs& inputs, const GrowthShape& shape);
  // Guesses on the device, packed:
  at::Tensor first(const Features& features, const PassInputs& there, int64_t width);
  at::Tensor next(const DraftState& state, const at::Tensor& parents_and_ids, int64_t width);
  at::Tensor replay_first(const Source& source, const PassInputs& inputs, int64_t width);
  at::Tensor replay_next(const at::Tensor& parents_and_ids, int64_t width);
  void keep(const DraftState& state);
  bool kept_in_place() const;
  int64_t recorded_width(int64_t width, int64_t depth) const;

  Drafter& drafter_;
  KvCache& cache_;
  int64_t first_layer_;
  Recorder& recorder_;
  // Where graphs find and leave what is handed from one to the next: features of the rows seen, [most rows,
  // ..], and states, [most rows, H], which two depths in turn take.
  Features features_;
  std::array<at::Tensor, 2> places_;
  DraftState state_;  // after the last call
  UnderWay under_way_;
  bool settled_ = true;
  double seconds_ = 0;
  std::map<GrownKey, Begun> grown_;
  std::map<PrimedKey, Begun> primed_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, Extended> extended_;  // depth, rows, width
};

}  // namespace clover::model
