#include "model/graphs/draft_graphs.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "kernels/gpu/gpu.h"
#include "model/graphs/timer.h"

namespace clover::model {
namespace {

// Of a level of a tree: the kernel's bound, and what a GPU computes rows for whether they are needed or not.
constexpr int64_t most_live_nodes = 64, most_live_there = 16;
constexpr int64_t fewest_nodes = 8;  // that a recorded draft has room for

at::Tensor tensor_of(std::span<const int64_t> values) {
  return at::tensor(at::IntArrayRef(values.data(), values.size()), at::kLong);
}

/// Bytes of one tree of `nodes` nodes, and trees in so many bytes each: its ids, parents, probabilities,
/// state.
int64_t bytes_of_tree(int64_t nodes) {
  return 16 * nodes + kernels::tree_state_size * static_cast<int64_t>(sizeof(int32_t));
}
kernels::GrowingTrees trees_in(const at::Tensor& bytes, int64_t nodes) {
  const int64_t trees = bytes.size(0) / bytes_of_tree(nodes);
  int64_t begin = 0;
  const auto part = [&](int64_t columns, at::ScalarType dtype) {
    const int64_t size = trees * columns * static_cast<int64_t>(c10::elementSize(dtype));
    const at::Tensor view = bytes.narrow(0, begin, size).view(dtype).view({trees, columns});
    begin += size;
    return view;
  };
  kernels::GrowingTrees all;
  all.ids = part(nodes, at::kLong);
  all.parent = part(nodes, at::kInt);
  all.joint = part(nodes, at::kFloat);
  all.state = part(kernels::tree_state_size, at::kInt);
  return all;
}

/// Of trees that are roots so far: tree i is guessed for by row i.
at::Tensor first_states(std::span<const Growth::Tree> trees) {
  at::Tensor states = at::empty({std::ssize(trees), kernels::tree_state_size}, at::kInt);
  auto* to = static_cast<kernels::TreeState*>(states.mutable_data_ptr());
  for (int32_t i = 0; i < std::ssize(trees); ++i) {
    const auto& [most_nodes, levels, least_joint] = trees[i];
    to[i] = {.row = i,
             .most_nodes = static_cast<int32_t>(most_nodes),
             .levels = static_cast<int32_t>(levels),
             .least_joint = least_joint};
  }
  return states;
}

/// Nodes of a level that a GPU makes guesses for: no more than guesses lead to, nor than there is probability
/// for.
int64_t most_of_a_level(const Growth& growth, int64_t levels) {
  int64_t reached = 1;
  for (int64_t level = 1; level < levels && reached < most_live_there; ++level) reached *= growth.rule.width;
  float least_joint = 1;
  for (const Growth::Tree& tree : growth.trees) least_joint = std::min(least_joint, tree.least_joint);
  constexpr float rounding = 1e-3f;
  if (least_joint * static_cast<float>(most_live_there) > 1)
    reached = std::min(reached, recorded_rows(static_cast<int64_t>((1 + rounding) / least_joint)));
  return std::min(reached, most_live_there);
}

at::Device device_of(const Drafter& drafter) {
  return drafter.head(0).packed.device();
}

}  // namespace

DraftGraphs::DraftGraphs(Drafter& drafter, KvCache& cache, int64_t first_layer, Recorder& recorder)
    : drafter_(drafter), cache_(cache), first_layer_(first_layer), recorder_(recorder) {}

PassInputs DraftGraphs::inputs_of(const SeenRows& seen, std::span<const int64_t> frontier) {
  PassInputs inputs;
  inputs.ids = tensor_of(seen.next_ids);
  if (drafter_.kv_layers() > 0) inputs.placement = cache_.place(seen.segments);
  inputs.wanted = tensor_of(frontier);
  return inputs;
}

PassShape DraftGraphs::shape_for(const PassInputs& inputs) const {
  const at::Tensor& pages = inputs.placement.rows.page_table;
  const int64_t wanted = recorded_rows(inputs.wanted.size(0));
  // A sequence for each row wanted, and one more for the rows that fill up.
  return {recorded_rows(inputs.ids.size(0)), wanted + 1, pages.defined() ? recorded_pages(pages.size(1)) : 0,
          0, wanted};
}

bool DraftGraphs::records(const PassInputs& inputs) const {
  return recorder_.enabled() && inputs.wanted.size(0) > 0 && inputs.ids.size(0) <= most_recorded_rows &&
         shape_for(inputs).holds(inputs);
}

kernels::GrowingTrees DraftGraphs::grow(const SeenRows& seen, std::span<const int64_t> frontier,
                                        const Growth& growth) {
  const Timer timer(seconds_);
  const at::NoGradGuard no_grad;
  settled_ = true;
  const GrowthShape shape = shape_of(growth);
  const at::Tensor there = grow_there(source_of(seen), inputs_of(seen, frontier), growth, shape);
  return trees_in(kernels::to_host({there})[0], shape.nodes);
}

// What nobody needs before the next pass comes last: the CPU works on the trees meanwhile.
void DraftGraphs::begin(const JudgedRows& judged, const SeenRows& seen, const Growth& growth) {
  const at::NoGradGuard no_grad;
  settled_ = true;
  auto began = kernels::mark(device_of(drafter_));
  FollowedRows followed(judged);
  const GrowthShape shape = shape_of(growth);
  const std::vector<int64_t> frontier(growth.trees.size(), 0);
  const at::Tensor there =
      grow_there(source_of(judged, seen, followed), inputs_of(seen, frontier), growth, shape);
  under_way_ = {kernels::begin_to_host(there), std::move(began), shape.nodes, settled_};
  cache_.move(followed.moves(), first_layer_);
}

DraftGraphs::Grown DraftGraphs::finish() {
  const Timer timer(seconds_);
  TORCH_CHECK(under_way_.began != nullptr, "DraftGraphs: no draft has been begun");
  const UnderWay done = std::exchange(under_way_, {});
  settled_ = done.settled;
  return {trees_in(done.trees.wait(), done.nodes), done.trees.there->seconds_since(*done.began)};
}

at::Tensor DraftGraphs::grow_there(const Source& source, PassInputs inputs, const Growth& growth,
                                   const GrowthShape& shape) {
  inputs.trees = first_states(growth.trees);
  if (records(inputs)) return replay_growth(source, inputs, shape);
  const PassInputs there = to_device(inputs, device_of(drafter_));
  return grown(source(there, 0), there, shape);
}

DraftGraphs::GrowthShape DraftGraphs::shape_of(const Growth& growth) const {
  GrowthShape shape{1, 1, 1, growth.rule};
  for (const Growth::Tree& tree : growth.trees) {
    shape.nodes = std::max(shape.nodes, tree.most_nodes);
    shape.levels = std::max(shape.levels, tree.levels);
  }
  shape.rule.one_row_a_tree = !drafter_.regressive();
  const int64_t guesses = std::max<int64_t>(1, shape.nodes - 1);
  shape.most_live = std::min(guesses, most_live_nodes);
  if (device_of(drafter_).is_cpu()) return shape;
  // Shapes that come again: near their end answers want shallower trees, which say so themselves.
  shape.levels = std::min(guesses, drafter_.max_depth());
  shape.nodes = power_of_two(shape.nodes, fewest_nodes);
  if (shape.rule.one_row_a_tree) return shape;
  // The CPU computes the rows that there are, a GPU all that there may be: how many there are only it knows.
  const int64_t frontier = std::ssize(growth.trees);
  const int64_t trees = frontier <= most_recorded_rows ? recorded_rows(frontier) : frontier;
  const int64_t room = std::max<int64_t>(1, most_recorded_rows / trees);
  shape.most_live = std::min({shape.most_live, most_of_a_level(growth, shape.levels), room});
  return shape;
}

// All of a draft, on the device: run one by one or recorded.
at::Tensor DraftGraphs::grown(const Features& features, const PassInputs& there, const GrowthShape& shape) {
  DraftKv kv{&cache_, first_layer_, there.placement};
  DraftState state = drafter_.prime(features, there.ids, {}, there.wanted, &kv);
  const int64_t count = there.wanted.size(0);
  const at::Tensor bytes =
      at::empty({count * bytes_of_tree(shape.nodes)}, there.trees.options().dtype(at::kByte));
  kernels::GrowingTrees trees = trees_in(bytes, shape.nodes);
  trees.state.copy_(there.trees);
  const int64_t room = shape.rule.one_row_a_tree ? count : count * shape.most_live;
  trees.rows = at::empty({2, room}, there.wanted.options());
  trees.row_count = at::empty({1}, there.trees.options());
  for (int64_t level = 1;; ++level) {
    const Guesses guesses = guesses_of(drafter_, state, shape.rule.width);
    kernels::grow_level(guesses.logits, guesses.ids, guesses.log_sums, shape.rule, shape.most_live, trees);
    const int64_t rows = bytes.is_cpu() ? trees.row_count.item<int32_t>() : room;
    if (level == shape.levels || rows == 0) return bytes;
    state = drafter_.extend(state, trees.rows[0].narrow(0, 0, rows), trees.rows[1].narrow(0, 0, rows));
  }
}

Guesses DraftGraphs::prime(const SeenRows& seen, std::span<const int64_t> frontier, int64_t width) {
  const Timer timer(seconds_);
  const at::NoGradGuard no_grad;
  settled_ = true;
  if (seen.next_ids.empty()) return {};
  const PassInputs inputs = inputs_of(seen, frontier);
  const at::Tensor there =
      records(inputs) ? replay_first(source_of(seen), inputs, width)
                      : first(Features::joined(seen.parts), to_device(inputs, device_of(drafter_)), width);
  return unpacked(there, std::ssize(frontier));
}

Guesses DraftGraphs::extend(std::span<const int64_t> parents, std::span<const int64_t> ids, int64_t width) {
  const Timer timer(seconds_);
  const at::NoGradGuard no_grad;
  const int64_t rows = std::ssize(parents);
  const bool records = recorder_.enabled() && kept_in_place() && rows <= most_recorded_rows;
  // Rows that fill up continue the first one with the first token.
  const at::Tensor both = at::zeros({2, records ? recorded_rows(rows) : rows}, at::kLong);
  std::copy(parents.begin(), parents.end(), both[0].mutable_data_ptr<int64_t>());
  std::copy(ids.begin(), ids.end(), both[1].mutable_data_ptr<int64_t>());
  const at::Tensor there =
      records ? replay_next(both, width) : next(state_, kernels::to_device(both, device_of(drafter_)), width);
  return unpacked(there, rows);
}

// What `prime` does, all on the device: run one by one or recorded.
at::Tensor DraftGraphs::first(const Features& features, const PassInputs& there, int64_t width) {
  DraftKv kv{&cache_, first_layer_, there.placement};
  const DraftState state = drafter_.prime(features, there.ids, {}, there.wanted, &kv);
  if (there.wanted.size(0) == 0) return {};
  keep(state);
  return packed(guesses_of(drafter_, state, width));
}

// What `extend` does, the same.
at::Tensor DraftGraphs::next(const DraftState& before, const at::Tensor& parents_and_ids, int64_t width) {
  const DraftState state = drafter_.extend(before, parents_and_ids[0], parents_and_ids[1]);
  keep(state);
  return packed(guesses_of(drafter_, state, width));
}

template <class Key, class Body>
at::Tensor DraftGraphs::replay(std::map<Key, Begun>& begun, const Key& key, const Source& source,
                               const PassInputs& inputs, const Body& body) {
  const PassShape shape = shape_for(inputs);
  auto found = begun.find(key);
  if (found == begun.end())
    found = begun.emplace(key, Begun{PaddedInputs(shape, inputs, device_of(drafter_)), {}}).first;
  Begun& entry = found->second;
  entry.inputs.send(inputs, cache_.spare_slot());
  const Features features = source(entry.inputs.there(), shape.rows);
  settled_ = recorder_.run(entry.work, [&] { entry.yields = body(features, entry.inputs.there()); });
  return entry.yields;
}

at::Tensor DraftGraphs::replay_first(const Source& source, const PassInputs& inputs, int64_t width) {
  const PassShape shape = shape_for(inputs);
  width = recorded_width(width, 0);
  state_ = {places_[0], 0};
  return replay(
      primed_, PrimedKey{{shape.rows, shape.pages, shape.wanted}, width}, source, inputs,
      [&](const Features& features, const PassInputs& there) { return first(features, there, width); });
}

at::Tensor DraftGraphs::replay_growth(const Source& source, const PassInputs& inputs,
                                      const GrowthShape& shape) {
  const PassShape place = shape_for(inputs);
  const kernels::LevelRule& rule = shape.rule;
  const GrownKey key{{place.rows, place.pages, place.wanted},
                     {shape.nodes, shape.levels, shape.most_live, rule.width},
                     {rule.top_p, rule.relative_cut}};
  return replay(grown_, key, source, inputs, [&](const Features& features, const PassInputs& there) {
    return grown(features, there, shape);
  });
}

at::Tensor DraftGraphs::replay_next(const at::Tensor& parents_and_ids, int64_t width) {
  const DraftState before = state_;
  const int64_t depth = before.depth + 1;
  width = recorded_width(width, depth);
  Extended& entry = extended_[{depth, parents_and_ids.size(1), width}];
  if (entry.inputs.defined())
    kernels::upload(parents_and_ids, entry.inputs);
  else
    entry.inputs = kernels::to_device(parents_and_ids, device_of(drafter_));
  state_ = {places_[depth % 2], depth};
  settled_ &= recorder_.run(entry.work, [&] { entry.guesses = next(before, entry.inputs, width); });
  return entry.guesses;
}

DraftGraphs::Source DraftGraphs::source_of(const SeenRows& seen) {
  return [this, &seen](const PassInputs&, int64_t place) {
    if (place == 0) return Features::joined(seen.parts);
    return in_place(place, seen.parts[0], [&seen](at::Tensor Features::*of, at::Tensor& to) {
      std::vector<at::Tensor> parts;
      for (const Features& part : seen.parts) parts.push_back(part.*of);
      at::Tensor rows = to.narrow(0, 0, std::ssize(seen.next_ids));
      if (parts.size() == 1)
        rows.copy_(parts[0]);
      else
        at::cat_out(rows, parts);
    });
  };
}

DraftGraphs::Source DraftGraphs::source_of(const JudgedRows& judged, const SeenRows& seen,
                                           FollowedRows& followed) {
  return [this, &judged, &seen, &followed](const PassInputs& there, int64_t place) {
    followed.follow(there);
    std::vector<Features> parts{judged.features};
    parts.insert(parts.end(), seen.parts.begin(), seen.parts.end());
    const Features from = Features::joined(parts);
    if (place == 0) return from.rows(followed.seen());
    return in_place(place, from, [&from, &followed](at::Tensor Features::*of, at::Tensor& to) {
      at::Tensor rows = to.narrow(0, 0, followed.seen().size(0));
      at::index_select_out(rows, from.*of, 0, followed.seen());
    });
  };
}

// Features where graphs look for them, of so many rows; those that `fill` leaves are anything.
Features DraftGraphs::in_place(int64_t rows, const Features& like,
                               const std::function<void(at::Tensor Features::*of, at::Tensor& place)>& fill) {
  Features placed;
  for (const auto of : feature_members) {
    if (!(like.*of).defined()) continue;
    at::Tensor& place = features_.*of;
    if (!place.defined()) place = at::zeros({most_recorded_rows, (like.*of).size(1)}, (like.*of).options());
    fill(of, place);
    placed.*of = place.narrow(0, 0, rows);
  }
  return placed;
}

// The next call continues it, which a graph does from a fixed place.
void DraftGraphs::keep(const DraftState& state) {
  state_ = {state.hidden, state.depth};
  const int64_t rows = state.hidden.size(0);
  if (!recorder_.enabled() || rows > most_recorded_rows) return;
  at::Tensor& place = places_[state.depth % 2];
  if (!place.defined()) place = at::empty({most_recorded_rows, state.hidden.size(1)}, state.hidden.options());
  place.narrow(0, 0, rows).copy_(state.hidden);
  state_.hidden = place;
}

bool DraftGraphs::kept_in_place() const {
  return state_.hidden.is_same(places_[state_.depth % 2]);
}

// Guesses beyond those asked for cost little, and one graph serves several widths.
int64_t DraftGraphs::recorded_width(int64_t width, int64_t depth) const {
  return std::min(power_of_two(width, 1), drafter_.head(depth).size());
}

}  // namespace clover::model
