#include <numeric>
#include <random>

#include "kernels/gpu/gpu.h"
#include "model/graphs/draft_runner.h"
#include "tests/infer/engine/gpu_engine.h"

// Drafts that a GPU begins after a pass, before the CPU knows which tokens were accepted: the trees and the
// KV cache are the same as when the CPU verifies first.
namespace clover::infer {
namespace {

using nlohmann::json;

/// One sequence's tree in a pass, and the target's token after each of its rows.
struct Judged {
  std::vector<int64_t> ids{7}, tokens;
  std::vector<int32_t> parents{-1}, path{0};  // parents of the rows; the accepted rows
  int32_t deepest = 0;
  bool drafted = true;  // whether a draft follows for this sequence
};

class Random {
 public:
  int64_t draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  Judged tree() {
    Judged tree;
    std::vector<int32_t> depth{0};
    for (int64_t rows = draw(1, 6); std::ssize(tree.ids) < rows;) {
      const int32_t parent = static_cast<int32_t>(draw(0, std::ssize(tree.ids) - 1));
      tree.parents.push_back(parent);
      tree.ids.push_back(10 + 3 * std::ssize(tree.ids));
      depth.push_back(depth[parent] + 1);
      tree.deepest = std::max(tree.deepest, depth.back());
    }
    for (int32_t row = 0; row < std::ssize(tree.ids); ++row) {
      std::vector<int32_t> next;
      for (int32_t child = row + 1; child < std::ssize(tree.ids); ++child)
        if (tree.parents[child] == row) next.push_back(child);
      const bool follows = !next.empty() && draw(0, 3) > 0;
      const int32_t child = follows ? next[draw(0, std::ssize(next) - 1)] : 0;
      tree.tokens.push_back(follows ? tree.ids[child] : 60 + draw(0, 40));
      if (follows && row == tree.path.back()) tree.path.push_back(child);
    }
    tree.drafted = draw(0, 3) > 0;
    return tree;
  }

 private:
  std::mt19937_64 random_{9};
};

/// Passes and drafts of a few sequences.
class Decoding {
 public:
  Decoding(const model::Target& target, model::Drafter& drafter, int64_t sequences, bool graphs)
      : cache_(target.kv_shape(drafter.kv_layers()), 64, 4),
        graph_runner_(target.device(), graphs),
        passes_(target, cache_, sequences, graph_runner_),
        draft_(drafter, cache_, target.config().layers, graph_runner_),
        target_(target),
        rows_behind_(sequences) {
    for (int64_t i = 0; i < sequences; ++i) sequences_.push_back(cache_.open());
  }

  /// The CPU verifies the trees, and then starts the drafts.
  kernels::GrowingTrees after(const std::vector<Judged>& trees) {
    const model::Features features = pass(trees);
    std::vector<model::KvCache::KeptRows> kept;
    model::DraftInput input;
    std::vector<int64_t> frontier;
    int64_t base = 0;
    for (size_t i = 0; i < trees.size(); ++i) {
      kept.push_back({sequences_[i], trees[i].path});
      for (const int32_t row : trees[i].path) {
        const at::Tensor index = at::full({1}, base + row, at::kLong);
        rows_behind_[i].push_back({features.rows(index), trees[i].tokens[row]});
      }
      const int64_t begin = cache_.length(sequences_[i]) + std::ssize(trees[i].path) - behind(i);
      base += std::ssize(trees[i].ids);
      if (!trees[i].drafted) continue;
      const size_t first = last_only() ? rows_behind_[i].size() - 1 : 0;
      for (size_t row = first; row < rows_behind_[i].size(); ++row) {
        input.parts.push_back(rows_behind_[i][row].features);
        input.next_ids.push_back(rows_behind_[i][row].next);
      }
      input.segments.push_back({sequences_[i], static_cast<int32_t>(begin), static_cast<int32_t>(behind(i))});
      frontier.push_back(std::ssize(input.next_ids) - 1);
      rows_behind_[i].clear();
    }
    cache_.keep_rows(kept, target_.config().layers);
    return frontier.empty() ? kernels::GrowingTrees{} : draft_.grow(input, frontier, growth(trees));
  }

  /// The GPU verifies the trees and drafts.
  kernels::GrowingTrees ahead(const std::vector<Judged>& trees) {
    model::UnverifiedTrees unverified;
    unverified.features = pass(trees);
    std::vector<int64_t> tokens;
    for (size_t i = 0; i < trees.size(); ++i) {
      const int64_t base = std::ssize(unverified.ids);
      unverified.ids.insert(unverified.ids.end(), trees[i].ids.begin(), trees[i].ids.end());
      tokens.insert(tokens.end(), trees[i].tokens.begin(), trees[i].tokens.end());
      for (const int32_t parent : trees[i].parents)
        unverified.parents.push_back(parent < 0 ? -1 : base + parent);
      cache_.append_slots(sequences_[i], std::ssize(trees[i].ids), unverified.slots);
      unverified.tree_rows.push_back({.row = base, .rows = std::ssize(trees[i].ids)});
    }
    unverified.tokens = kernels::to_device(at::tensor(tokens), target_.device());
    model::DraftInput input;
    int64_t frontier = 0;
    for (size_t i = 0; i < trees.size(); ++i) {
      if (!trees[i].drafted) continue;
      const int64_t room = last_only() ? 1 : trees[i].deepest + 1;
      const int64_t begin = cache_.length(sequences_[i]) - behind(i);
      if (last_only()) rows_behind_[i].clear();
      for (const Behind& row : rows_behind_[i]) {
        unverified.drafter_rows.push_back(std::ssize(unverified.ids) + std::ssize(input.parts));
        input.parts.push_back(row.features);
        input.next_ids.push_back(row.next);
      }
      unverified.tree_rows[i].first_drafter_row = std::ssize(unverified.drafter_rows);
      unverified.tree_rows[i].drafter_rows = room;
      unverified.tree_rows[i].last_row_index = frontier++;
      unverified.drafter_rows.resize(unverified.drafter_rows.size() + room);
      input.next_ids.resize(unverified.drafter_rows.size());
      input.segments.push_back(
          {sequences_[i], static_cast<int32_t>(begin), static_cast<int32_t>(behind(i) + room)});
      rows_behind_[i].clear();
    }
    if (frontier > 0) draft_.grow_ahead(unverified, input, growth(trees));
    settle(trees, unverified.features, frontier > 0);
    return frontier > 0 ? draft_.wait_for_trees().trees : kernels::GrowingTrees{};
  }

  const model::GraphRunner& graph_runner() const { return graph_runner_; }

 private:
  struct Behind {
    model::Features features;
    int64_t next;
  };
  int64_t behind(size_t i) const { return std::ssize(rows_behind_[i]); }
  bool last_only() const { return draft_.drafter().kv_layers() == 0; }

  model::Growth growth(const std::vector<Judged>& trees) const {
    model::Growth growth;
    growth.level_rule = {.max_candidates = 4};
    growth.levels = draft_.drafter().trained_depth();
    for (const Judged& tree : trees)
      if (tree.drafted) growth.limits.push_back({6, draft_.drafter().max_depth(), 0});
    return growth;
  }

  model::Features pass(const std::vector<Judged>& trees) {
    model::RowBatch batch;
    for (size_t i = 0; i < trees.size(); ++i) {
      const int32_t base = static_cast<int32_t>(batch.size());
      for (size_t row = 0; row < trees[i].ids.size(); ++row) {
        const int32_t parent = trees[i].parents[row];
        batch.add(trees[i].ids[row], sequences_[i], parent < 0 ? -1 : base + parent);
      }
    }
    batch.wanted_rows.resize(batch.size());
    std::iota(batch.wanted_rows.begin(), batch.wanted_rows.end(), 0);
    return passes_.forward(batch, draft_.drafter().taps()).features;
  }

  void settle(const std::vector<Judged>& trees, const model::Features& features, bool moved) {
    std::vector<model::KvCache::KeptRows> kept;
    int64_t base = 0;
    for (size_t i = 0; i < trees.size(); ++i) {
      kept.push_back({sequences_[i], trees[i].path});
      for (const int32_t row : trees[i].path) {
        const at::Tensor index = at::full({1}, base + row, at::kLong);
        if (!trees[i].drafted) rows_behind_[i].push_back({features.rows(index), trees[i].tokens[row]});
      }
      base += std::ssize(trees[i].ids);
    }
    if (moved)
      cache_.commit(kept);
    else
      cache_.keep_rows(kept, target_.config().layers);
  }

  model::KvCache cache_;
  model::GraphRunner graph_runner_;
  model::PassGraphs passes_;
  model::DraftRunner draft_;
  const model::Target& target_;
  std::vector<int32_t> sequences_;
  std::vector<std::vector<Behind>> rows_behind_;  // that the drafter has not seen
};

using GpuAheadTest = GpuEngineTest;

TEST_F(GpuAheadTest, DraftsAreTheSameAsBehindRowsThatTheCpuHasFollowed) {
  const std::vector<std::pair<const char*, json>> kinds{
      {"clover", json::object()},        {"clover", {{"block", "none"}}},
      {"clover", {{"tap_layers", {1}}}}, {"clover", {{"tap_layers", {1}}, {"block", "none"}}},
      {"clover2", json::object()},       {"medusa", json::object()}};
  for (const auto& [kind, settings] : kinds) {
    SCOPED_TRACE(std::string(kind) + " " + settings.dump());
    const auto guesser = moved_drafter(*target_, kind, {}, settings);
    Decoding followed(*target_, *guesser, 3, false), ahead(*target_, *guesser, 3, false),
        with_graphs(*target_, *guesser, 3, true);
    Random random;
    for (int step = 0; step < 12; ++step) {
      std::vector<Judged> trees;
      for (int i = 0; i < 3; ++i) trees.push_back(random.tree());
      const kernels::GrowingTrees expected = followed.after(trees);
      for (Decoding* of : {&ahead, &with_graphs}) {
        SCOPED_TRACE("step " + std::to_string(step) + (of == &ahead ? "" : " with graphs"));
        const kernels::GrowingTrees found = of->ahead(trees);
        for (int64_t tree = 0, all = expected.ids.defined() ? expected.ids.size(0) : 0; tree < all; ++tree) {
          const auto nodes = [tree](const kernels::GrowingTrees& of) {
            return static_cast<const kernels::TreeState*>(of.state.const_data_ptr())[tree].nodes;
          };
          ASSERT_EQ(nodes(expected), nodes(found));
          const auto same = [&](const at::Tensor& a, const at::Tensor& b) {
            return at::equal(a[tree].slice(0, 1, nodes(expected)), b[tree].slice(0, 1, nodes(expected)));
          };
          EXPECT_TRUE(same(expected.ids, found.ids));
          EXPECT_TRUE(same(expected.parent, found.parent));
          EXPECT_TRUE(same(expected.score, found.score));
        }
      }
    }
    EXPECT_EQ(ahead.graph_runner().graph_count(), 0);
    EXPECT_GT(with_graphs.graph_runner().graph_count(), 0);
  }
}

// A CPU begins no draft ahead.  What a drafter has seen of a sequence, and where, is the same at every step.
TEST_F(GpuAheadTest, AsManyGuessesAreAcceptedAsWithoutDraftingAhead) {
  // All of them join at once: who joins later is drafted for a step later.
  auto all = requests(8, 0);
  std::erase_if(all, [](const Request& request) { return request.tag % 2 == 0; });
  for (Request& request : all) request.max_tokens = 40;
  const auto together = [](Policy policy) {
    EngineOptions chosen = options(policy, 1, 4);
    chosen.prefill_chunk = 512;
    return chosen;
  };
  for (const auto& [kind, settings] : std::vector<std::pair<const char*, json>>{
           {"clover", json::object()}, {"clover", {{"regression", "none"}}}, {"medusa", json::object()}}) {
    auto on_gpu = std::exchange(
        target_, model::Target::load(test::golden_target("tied-bf16"), at::kBFloat16, at::kCPU));
    auto guesser = drafter(kind, {}, settings);  // guesses that a token is said again
    const Answers expected = run(all, together(Policy::chain), guesser.get());
    const EngineStats before = stats_;
    target_ = std::move(on_gpu);
    guesser = drafter(kind, {}, settings);
    EXPECT_EQ(expected, run(all, together(Policy::chain), guesser.get()));
    EXPECT_EQ(stats_.accepted_histogram, before.accepted_histogram) << kind << settings;
    EXPECT_EQ(stats_.rows, before.rows);
    ASSERT_EQ(stats_.accepted_histogram.size(), 2u);
    EXPECT_GT(stats_.accepted_histogram[1], 10);
  }
}

// Requests that join late, leave early and are sent away, with guesses from their own text: drafts are under
// way for sequences that are gone, and missing for new ones.
TEST_F(GpuAheadTest, SequencesThatComeAndGoChangeNoToken) {
  const auto clover = drafter("clover"), medusa = drafter("medusa");
  auto all = requests(9, 0);
  for (Request& request : all) request.max_tokens = 6 + 10 * (request.tag % 4);
  Answers expected;
  for (const Request& request : all)
    expected.merge(run({request}, options(Policy::off, -1, 1, false), nullptr));
  for (model::Drafter* guesser : {clover.get(), medusa.get()}) {
    for (const Policy policy : {Policy::chain, Policy::clover, Policy::automatic}) {
      SCOPED_TRACE(guesser->kind() + " " + to_string(policy));
      EngineOptions chosen = options(policy, policy == Policy::automatic ? -1 : 5, 4);
      chosen.suffix = chosen.suffix_answers = true;
      const int64_t page = model::KvCache::bytes_per_page(target_->kv_shape(guesser->kv_layers()), 8);
      chosen.kv_memory = 8 * page;
      EXPECT_EQ(expected, run(all, chosen, guesser));
      // What auto drafts follows from measured times, and so does how long pages suffice.
      EXPECT_TRUE(stats_.preemptions > 0 || policy == Policy::automatic);
    }
  }
}

}  // namespace
}  // namespace clover::infer
