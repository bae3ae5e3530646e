#include "model/graphs/draft_graphs.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "kernels/gpu/gpu.h"
#include "model/graphs/timer.h"

namespace clover::model {
namespace {

// Nodes of a level that have children: the kernel's bound, and a GPU's, which computes so many rows even
// where fewer live.
constexpr int64_t most_live_nodes = 64, most_live_on_gpu = 16;
constexpr int64_t fewest_nodes = 8;  // a captured draft has room for so many

at::Tensor tensor_of(std::span<const int64_t> values) {
  return at::tensor(at::IntArrayRef(values.data(), values.size()), at::kLong);
}

/// Trees of `nodes` nodes packed into one tensor of bytes, so that one copy takes them to the CPU: all ids,
/// all parents, all probabilities, all states.  The bytes of one tree, and views of the parts.
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

/// The states of bare roots [F, tree_state_size]: row i guesses for tree i.
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

/// Nodes of a level that can have children on a GPU: no more than guesses reach, nor than can have a joint
/// probability of least_joint.
int64_t most_of_a_level(const Growth& growth, int64_t levels) {
  int64_t reached = 1;
  for (int64_t level = 1; level < levels && reached < most_live_on_gpu; ++level) reached *= growth.rule.width;
  float least_joint = 1;
  for (const Growth::Tree& tree : growth.trees) least_joint = std::min(least_joint, tree.least_joint);
  constexpr float rounding = 1e-3f;
  if (least_joint * static_cast<float>(most_live_on_gpu) > 1)
    reached = std::min(reached, captured_rows(static_cast<int64_t>((1 + rounding) / least_joint)));
  return std::min(reached, most_live_on_gpu);
}

at::Device device_of(const Drafter& drafter) {
  return drafter.device();
}

}  // namespace

DraftGraphs::DraftGraphs(Drafter& drafter, KvCache& cache, int64_t first_layer, GraphRunner& graph_runner)
    : drafter_(drafter), cache_(cache), first_layer_(first_layer), graph_runner_(graph_runner) {
  if (const Rope* rope = drafter.own_rope()) rotary_.emplace(rope->rotation(cache.shape().head_dim));
}

PassInputs DraftGraphs::inputs_of(const DraftInput& input, std::span<const int64_t> frontier, int64_t room) {
  PassInputs inputs;
  inputs.ids = tensor_of(input.next_ids);
  if (drafter_.kv_layers() > 0)
    inputs.placement = cache_.place(input.segments, room, rotary_ ? &*rotary_ : nullptr);
  inputs.wanted = tensor_of(frontier);
  return inputs;
}

PassShape DraftGraphs::shape_for(const PassInputs& inputs) const {
  const at::Tensor& pages = inputs.placement.rows.page_table;
  const int64_t wanted = captured_rows(inputs.wanted.size(0));
  // A sequence for each frontier row, and one more for padding rows.
  return {captured_rows(inputs.ids.size(0)), wanted + 1, pages.defined() ? captured_pages(pages.size(1)) : 0,
          0, wanted};
}

bool DraftGraphs::captures(const PassInputs& inputs) const {
  return graph_runner_.enabled() && inputs.wanted.size(0) > 0 && inputs.ids.size(0) <= most_captured_rows &&
         shape_for(inputs).holds(inputs);
}

kernels::GrowingTrees DraftGraphs::grow(const DraftInput& input, std::span<const int64_t> frontier,
                                        const Growth& growth) {
  const Timer timer(seconds_);
  const at::NoGradGuard no_grad;
  warm_ = true;
  const GrowthShape shape = shape_of(growth);
  const at::Tensor on_device =
      grow_on_device(source_of(input), inputs_of(input, frontier, room_for(shape)), growth, shape);
  return trees_in(kernels::to_host({on_device})[0], shape.nodes);
}

// The target's keys and values move last: only the next pass reads them, so the trees need not wait.
void DraftGraphs::begin(const UnverifiedTrees& trees, const DraftInput& input, const Growth& growth) {
  const at::NoGradGuard no_grad;
  warm_ = true;
  auto launched = kernels::record_event(device_of(drafter_));
  DeviceVerification verification(trees);
  const GrowthShape shape = shape_of(growth);
  const std::vector<int64_t> frontier(growth.trees.size(), 0);
  const at::Tensor on_device =
      grow_on_device(source_of(trees, input, verification), inputs_of(input, frontier), growth, shape);
  in_flight_ = {kernels::copy_to_host_async(on_device), std::move(launched), shape.nodes, warm_};
  cache_.move(verification.moves(), first_layer_);
}

DraftGraphs::Grown DraftGraphs::finish() {
  const Timer timer(seconds_);
  TORCH_CHECK(in_flight_.launched != nullptr, "DraftGraphs: no draft has been begun");
  const InFlight done = std::exchange(in_flight_, {});
  warm_ = done.warm;
  return {trees_in(done.trees.wait(), done.nodes), done.trees.event->seconds_since(*done.launched)};
}

// Of the nodes of a tree only the live ones of all levels but the last are extended.
int64_t DraftGraphs::room_for(const GrowthShape& shape) const {
  if (!drafter_.writes_guesses()) return 0;
  return std::min((shape.levels - 1) * shape.most_live, shape.nodes - 1);
}

at::Tensor DraftGraphs::grow_on_device(const Source& source, PassInputs inputs, const Growth& growth,
                                       const GrowthShape& shape) {
  inputs.trees = first_states(growth.trees);
  if (captures(inputs)) return replay_growth(source, inputs, shape);
  const PassInputs on_device = to_device(inputs, device_of(drafter_));
  return grown(source(on_device, 0), on_device, shape);
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
  // Few shapes to capture: that a tree near the end of its answer is shallower is in its state.
  shape.levels = std::min(guesses, std::max(shape.levels, drafter_.trained_depth()));
  shape.nodes = power_of_two(shape.nodes, fewest_nodes);
  if (shape.rule.one_row_a_tree) return shape;
  // The CPU computes as many rows as live; a GPU as many as may, because only it knows how many do.
  const int64_t frontier = std::ssize(growth.trees);
  const int64_t trees = frontier <= most_captured_rows ? captured_rows(frontier) : frontier;
  const int64_t room = std::max<int64_t>(1, most_captured_rows / trees);
  shape.most_live = std::min({shape.most_live, most_of_a_level(growth, shape.levels), room});
  return shape;
}

// A whole draft on the device, captured or not.
at::Tensor DraftGraphs::grown(const Features& features, const PassInputs& on_device,
                              const GrowthShape& shape) {
  DraftKv kv{&cache_, first_layer_, on_device.placement, room_for(shape)};
  DraftState state = drafter_.prime(features, on_device.ids, {}, on_device.wanted, &kv);
  const int64_t count = on_device.wanted.size(0);
  const at::Tensor bytes =
      at::empty({count * bytes_of_tree(shape.nodes)}, on_device.trees.options().dtype(at::kByte));
  kernels::GrowingTrees trees = trees_in(bytes, shape.nodes);
  trees.state.copy_(on_device.trees);
  const int64_t room = shape.rule.one_row_a_tree ? count : count * shape.most_live;
  trees.rows = at::empty({2, room}, on_device.wanted.options());
  trees.row_count = at::empty({1}, on_device.trees.options());
  for (int64_t level = 1;; ++level) {
    const Guesses guesses = guesses_of(drafter_, state, shape.rule.width);
    kernels::grow_level(guesses.logits, guesses.ids, guesses.log_sums, shape.rule, shape.most_live, trees);
    const int64_t rows = bytes.is_cpu() ? trees.row_count.item<int32_t>() : room;
    if (level == shape.levels || rows == 0) return bytes;
    state = drafter_.extend(state, trees.rows[0].narrow(0, 0, rows), trees.rows[1].narrow(0, 0, rows), &kv);
  }
}

Guesses DraftGraphs::prime(const DraftInput& input, std::span<const int64_t> frontier, int64_t width) {
  const Timer timer(seconds_);
  const at::NoGradGuard no_grad;
  warm_ = true;
  if (input.next_ids.empty()) return {};
  const PassInputs inputs = inputs_of(input, frontier);
  const at::Tensor on_device = captures(inputs) ? replay_first(source_of(input), inputs, width)
                                                : first(Features::concatenated(input.parts),
                                                        to_device(inputs, device_of(drafter_)), width);
  return unpacked(on_device, std::ssize(frontier));
}

Guesses DraftGraphs::extend(std::span<const int64_t> parents, std::span<const int64_t> ids, int64_t width) {
  const Timer timer(seconds_);
  const at::NoGradGuard no_grad;
  const int64_t rows = std::ssize(parents);
  const bool captured = graph_runner_.enabled() && kept_in_place() && rows <= most_captured_rows;
  // Padding rows continue row 0 with token 0.
  const at::Tensor both = at::zeros({2, captured ? captured_rows(rows) : rows}, at::kLong);
  std::copy(parents.begin(), parents.end(), both[0].mutable_data_ptr<int64_t>());
  std::copy(ids.begin(), ids.end(), both[1].mutable_data_ptr<int64_t>());
  const at::Tensor on_device = captured ? replay_next(both, width)
                                        : next(state_, kernels::to_device(both, device_of(drafter_)), width);
  return unpacked(on_device, rows);
}

// `prime` on the device, captured or not.
at::Tensor DraftGraphs::first(const Features& features, const PassInputs& on_device, int64_t width) {
  DraftKv kv{&cache_, first_layer_, on_device.placement};
  const DraftState state = drafter_.prime(features, on_device.ids, {}, on_device.wanted, &kv);
  if (on_device.wanted.size(0) == 0) return {};
  keep(state);
  return packed(guesses_of(drafter_, state, width));
}

// `extend` on the device, captured or not.
at::Tensor DraftGraphs::next(const DraftState& before, const at::Tensor& parents_and_ids, int64_t width) {
  const DraftState state = drafter_.extend(before, parents_and_ids[0], parents_and_ids[1], nullptr);
  keep(state);
  return packed(guesses_of(drafter_, state, width));
}

template <class Key, class Body>
at::Tensor DraftGraphs::replay(std::map<Key, Primed>& entries, const Key& key, const Source& source,
                               const PassInputs& inputs, const Body& body) {
  const PassShape shape = shape_for(inputs);
  auto found = entries.find(key);
  if (found == entries.end())
    found = entries.emplace(key, Primed{PaddedInputs(shape, inputs, device_of(drafter_)), {}}).first;
  Primed& entry = found->second;
  entry.inputs.upload(inputs, cache_.spare_slot());
  const Features features = source(entry.inputs.on_device(), shape.rows);
  warm_ = graph_runner_.run(entry.work, [&] { entry.results = body(features, entry.inputs.on_device()); });
  return entry.results;
}

at::Tensor DraftGraphs::replay_first(const Source& source, const PassInputs& inputs, int64_t width) {
  const PassShape shape = shape_for(inputs);
  width = captured_width(width, 0);
  state_ = {places_[0], 0};
  return replay(primed_, PrimedKey{{shape.rows, shape.pages, shape.wanted}, width}, source, inputs,
                [&](const Features& features, const PassInputs& on_device) {
                  return first(features, on_device, width);
                });
}

at::Tensor DraftGraphs::replay_growth(const Source& source, const PassInputs& inputs,
                                      const GrowthShape& shape) {
  const PassShape place = shape_for(inputs);
  const kernels::LevelRule& rule = shape.rule;
  const GrownKey key{{place.rows, place.pages, place.wanted},
                     {shape.nodes, shape.levels, shape.most_live, rule.width},
                     {rule.top_p, rule.relative_cut}};
  return replay(grown_, key, source, inputs, [&](const Features& features, const PassInputs& on_device) {
    return grown(features, on_device, shape);
  });
}

at::Tensor DraftGraphs::replay_next(const at::Tensor& parents_and_ids, int64_t width) {
  const DraftState before = state_;
  const int64_t depth = before.depth + 1;
  width = captured_width(width, depth);
  Extended& entry = extended_[{depth, parents_and_ids.size(1), width}];
  if (entry.inputs.defined())
    kernels::upload(parents_and_ids, entry.inputs);
  else
    entry.inputs = kernels::to_device(parents_and_ids, device_of(drafter_));
  state_ = {places_[depth % 2], depth};
  warm_ &= graph_runner_.run(entry.work, [&] { entry.guesses = next(before, entry.inputs, width); });
  return entry.guesses;
}

DraftGraphs::Source DraftGraphs::source_of(const DraftInput& input) {
  return [this, &input](const PassInputs&, int64_t rows) {
    if (rows == 0) return Features::concatenated(input.parts);
    return in_place(rows, input.parts[0], [&input](at::Tensor Features::*of, at::Tensor& to) {
      std::vector<at::Tensor> parts;
      for (const Features& part : input.parts) parts.push_back(part.*of);
      at::Tensor own = to.narrow(0, 0, std::ssize(input.next_ids));
      if (parts.size() == 1)
        own.copy_(parts[0]);
      else
        at::cat_out(own, parts);
    });
  };
}

DraftGraphs::Source DraftGraphs::source_of(const UnverifiedTrees& trees, const DraftInput& input,
                                           DeviceVerification& verification) {
  return [this, &trees, &input, &verification](const PassInputs& on_device, int64_t rows) {
    verification.launch(on_device);
    std::vector<Features> parts{trees.features};
    parts.insert(parts.end(), input.parts.begin(), input.parts.end());
    const Features from = Features::concatenated(parts);
    if (rows == 0) return from.rows(verification.drafter_rows());
    return in_place(rows, from, [&from, &verification](at::Tensor Features::*of, at::Tensor& to) {
      at::Tensor own = to.narrow(0, 0, verification.drafter_rows().size(0));
      at::index_select_out(own, from.*of, 0, verification.drafter_rows());
    });
  };
}

// Features where graphs read them, of so many rows; those that `fill` does not write hold anything.
Features DraftGraphs::in_place(int64_t rows, const Features& like,
                               const std::function<void(at::Tensor Features::*of, at::Tensor& place)>& fill) {
  Features placed;
  for (const auto of : feature_members) {
    if (!(like.*of).defined()) continue;
    at::Tensor& place = features_.*of;
    if (!place.defined()) place = at::zeros({most_captured_rows, (like.*of).size(1)}, (like.*of).options());
    fill(of, place);
    placed.*of = place.narrow(0, 0, rows);
  }
  return placed;
}

// Keeps the state for the next call, in a fixed place for a graph to read.
void DraftGraphs::keep(const DraftState& state) {
  state_ = {state.hidden, state.depth};
  const int64_t rows = state.hidden.size(0);
  if (!graph_runner_.enabled() || rows > most_captured_rows) return;
  at::Tensor& place = places_[state.depth % 2];
  if (!place.defined()) place = at::empty({most_captured_rows, state.hidden.size(1)}, state.hidden.options());
  place.narrow(0, 0, rows).copy_(state.hidden);
  state_.hidden = place;
}

bool DraftGraphs::kept_in_place() const {
  return state_.hidden.is_same(places_[state_.depth % 2]);
}

// One graph serves several widths: guesses beyond those asked for cost little.
int64_t DraftGraphs::captured_width(int64_t width, int64_t depth) const {
  return std::min(power_of_two(width, 1), drafter_.head(depth).size());
}

}  // namespace clover::model
