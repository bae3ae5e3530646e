#include "model/graphs/draft_runner.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/gpu/gpu.h"
#include "model/graphs/captured_sizes.h"
#include "model/graphs/guesses.h"
#include "model/graphs/timer.h"

namespace clover::model {
namespace {

// Nodes of a level that have children: the kernel's bound, and a GPU's, which computes so many rows even
// where fewer live.
constexpr int64_t most_live_nodes = 64, most_live_on_gpu = 16;

at::Tensor tensor_of(std::span<const int64_t> values) {
  return at::tensor(at::IntArrayRef(values.data(), values.size()), at::kLong);
}

/// Trees of `nodes` nodes packed into one tensor of bytes, so that one copy takes them to the CPU: all ids,
/// all parents, all scores, all states.  The bytes of one tree, and views of the parts.
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
  all.score = part(nodes, at::kFloat);
  all.state = part(kernels::tree_state_size, at::kInt);
  return all;
}

/// Nodes of a level that can have children on a GPU: no more than guesses reach, nor than can have a joint
/// probability of least_joint.
int64_t most_of_a_level(const Growth& growth, int64_t levels) {
  int64_t reached = 1;
  for (int64_t level = 1; level < levels && reached < most_live_on_gpu; ++level)
    reached *= growth.level_rule.max_candidates;
  float least_joint = 1;
  for (const Growth::TreeLimits& tree : growth.limits) least_joint = std::min(least_joint, tree.least_joint);
  constexpr float rounding = 1e-3f;
  if (least_joint * static_cast<float>(most_live_on_gpu) > 1)
    reached = std::min(reached, captured_rows(static_cast<int64_t>((1 + rounding) / least_joint)));
  return std::min(reached, most_live_on_gpu);
}

}  // namespace

DraftRunner::DraftRunner(Drafter& drafter, KvCache& cache, int64_t first_layer, GraphRunner& graph_runner)
    : drafter_(drafter), cache_(cache), first_layer_(first_layer), graph_runner_(graph_runner) {
  if (const Rope* rope = drafter.own_rope()) rotary_.emplace(rope->rotation(cache.shape().head_dim));
}

PassInputs DraftRunner::inputs_of(const DraftInput& input, std::span<const int64_t> frontier,
                                  int64_t guess_slots) {
  PassInputs inputs;
  inputs.ids = tensor_of(input.next_ids);
  if (drafter_.kv_layers() > 0)
    inputs.placement = cache_.place(input.segments, guess_slots, rotary_ ? &*rotary_ : nullptr);
  inputs.wanted = tensor_of(frontier);
  return inputs;
}

PassShape DraftRunner::shape_for(const PassInputs& inputs) const {
  const at::Tensor& pages = inputs.placement.rows.page_table;
  const int64_t wanted = captured_rows(inputs.wanted.size(0));
  // A sequence for each frontier row, and one more for padding rows.
  return {captured_rows(inputs.ids.size(0)), wanted + 1, pages.defined() ? captured_pages(pages.size(1)) : 0,
          0, wanted};
}

bool DraftRunner::captures(const PassInputs& inputs, const GrowthShape& shape) const {
  const int64_t trees = inputs.wanted.size(0), live = shape.level_rule.one_row_a_tree ? 1 : shape.most_live;
  return graph_runner_.enabled() && inputs.ids.size(0) <= most_captured_rows && trees <= most_captured_rows &&
         captured_rows(trees) * live <= most_captured_rows && shape_for(inputs).holds(inputs);
}

kernels::GrowingTrees DraftRunner::grow(const DraftInput& input, std::span<const int64_t> frontier,
                                        const Growth& growth) {
  const Timer timer(seconds_);
  const at::NoGradGuard no_grad;
  warm_ = true;
  const GrowthShape shape = shape_of(growth);
  const at::Tensor on_device =
      grow_on_device(gatherer_of(input), inputs_of(input, frontier, guess_slots_for(shape)), growth, shape);
  return trees_in(kernels::to_host({on_device})[0], shape.remaining);
}

// The target's keys and values move last: only the next pass reads them, so the trees need not wait.
void DraftRunner::begin(const UnverifiedTrees& unverified, const DraftInput& input, const Growth& growth) {
  TORCH_CHECK(!drafter_.writes_guesses(),
              "DraftRunner::begin: a drafter that writes no guesses was expected");
  const at::NoGradGuard no_grad;
  warm_ = true;
  auto launched = kernels::record_event(drafter_.device());
  DeviceVerification verification(unverified);
  const GrowthShape shape = shape_of(growth);
  // Placeholders: the GPU writes the row of each tree's last accepted row here (DeviceVerification::launch).
  const std::vector<int64_t> frontier(growth.limits.size(), 0);
  const at::Tensor on_device =
      grow_on_device(gatherer_of(unverified, input, verification), inputs_of(input, frontier), growth, shape);
  in_flight_ = {kernels::copy_to_host_async(on_device), std::move(launched), shape.remaining, warm_};
  cache_.move(verification.moves(), first_layer_);
}

DraftRunner::TimedTrees DraftRunner::finish() {
  const Timer timer(seconds_);
  TORCH_CHECK(in_flight_.launched != nullptr, "DraftRunner: no draft has been begun");
  const InFlight done = std::exchange(in_flight_, {});
  warm_ = done.warm;
  return {trees_in(done.trees.wait(), done.tree_room), done.trees.event->seconds_since(*done.launched)};
}

int64_t DraftRunner::guess_slots_for(const GrowthShape& shape) const {
  if (!drafter_.writes_guesses()) return 0;
  return max_guesses_written(shape.levels, shape.most_live, shape.nodes);
}

at::Tensor DraftRunner::grow_on_device(const GatherFeatures& gather, PassInputs inputs, const Growth& growth,
                                       const GrowthShape& shape) {
  inputs.trees = first_states(growth, shape);
  if (captures(inputs, shape)) return replay(gather, inputs, shape);
  const PassInputs on_device = to_device(inputs, drafter_.device());
  return run_draft(gather(on_device, 0), on_device, shape);
}

DraftRunner::GrowthShape DraftRunner::shape_of(const Growth& growth) const {
  GrowthShape shape{1, 1, 1, growth.softmax_over, 0, 1, growth.level_rule, growth.select};
  for (const Growth::TreeLimits& tree : growth.limits) {
    shape.nodes = std::max(shape.nodes, tree.most_nodes);
    shape.remaining = std::max(shape.remaining, growth.select ? tree.most_kept : tree.most_nodes);
    shape.levels = std::max(shape.levels, tree.levels);
    shape.planned = std::max(shape.planned, std::ssize(tree.plan));
  }
  shape.level_rule.one_row_a_tree = !drafter_.autoregressive();
  const int64_t guesses = std::max<int64_t>(1, shape.nodes - 1);
  shape.most_live = growth.most_live > 0 ? growth.most_live : std::min(guesses, most_live_nodes);
  if (drafter_.device().is_cpu()) return shape;
  // All trees get the same levels, so that few shapes are captured; a shallower tree says so in its
  // TreeState.
  shape.levels = std::min(guesses, growth.levels);
  shape.nodes = power_of_two(shape.nodes, min_tree_room);
  shape.remaining = power_of_two(shape.remaining, min_tree_room);
  if (shape.planned > 0) shape.planned = shape.nodes;
  if (shape.level_rule.one_row_a_tree || growth.most_live > 0) return shape;
  // The CPU computes only live rows; a GPU computes the most rows that could be live, because the CPU does
  // not know how many are.
  const int64_t frontier = std::ssize(growth.limits);
  const int64_t padded_trees = frontier <= most_captured_rows ? captured_rows(frontier) : frontier;
  const int64_t rows_per_tree = std::max<int64_t>(1, most_captured_rows / padded_trees);
  shape.most_live = std::min({shape.most_live, most_of_a_level(growth, shape.levels), rows_per_tree});
  return shape;
}

/// The states of bare roots, row i guessing for tree i, and behind each its plan: i32 [F, ..].
at::Tensor DraftRunner::first_states(const Growth& growth, const GrowthShape& shape) const {
  const int64_t width = kernels::tree_state_size + shape.planned * kernels::planned_node_size;
  const at::Tensor states = at::zeros({std::ssize(growth.limits), width}, at::kInt);
  int32_t* to = states.mutable_data_ptr<int32_t>();
  for (int32_t i = 0; i < std::ssize(growth.limits); ++i, to += width) {
    const Growth::TreeLimits& tree = growth.limits[i];
    kernels::TreeState state{.guess_row = i,
                             .most_nodes = static_cast<int32_t>(tree.most_nodes),
                             .levels = static_cast<int32_t>(tree.levels),
                             .least_score = tree.least_joint,
                             .most_kept = static_cast<int32_t>(tree.most_kept)};
    if (shape.level_rule.by_log_probability) state.least_score = std::log(tree.least_joint);
    std::memcpy(to, &state, sizeof state);
    if (!tree.plan.empty())
      std::memcpy(to + kernels::tree_state_size, tree.plan.data(), sizeof tree.plan[0] * tree.plan.size());
  }
  return states;
}

// A whole draft on the device, captured or not.
at::Tensor DraftRunner::run_draft(const Features& features, const PassInputs& on_device,
                                  const GrowthShape& shape) {
  DraftKv kv{&cache_, first_layer_, on_device.placement, guess_slots_for(shape)};
  DraftState state = drafter_.prime(features, on_device.ids, {}, on_device.wanted, &kv);
  const int64_t count = on_device.wanted.size(0);
  const at::Tensor bytes =
      at::empty({count * bytes_of_tree(shape.nodes)}, on_device.trees.options().dtype(at::kByte));
  kernels::GrowingTrees trees = trees_in(bytes, shape.nodes);
  trees.state.copy_(on_device.trees.narrow(1, 0, kernels::tree_state_size));
  if (shape.planned > 0)
    trees.plans =
        on_device.trees.narrow(1, kernels::tree_state_size, shape.planned * kernels::planned_node_size)
            .contiguous()
            .view({count, shape.planned, kernels::planned_node_size});
  const int64_t row_capacity = shape.level_rule.one_row_a_tree ? count : count * shape.most_live;
  trees.rows = at::empty({2, row_capacity}, on_device.wanted.options());
  trees.row_count = at::empty({1}, trees.state.options());
  if (!bytes.is_cpu()) kv.real_row_count = trees.row_count;
  for (int64_t level = 1;; ++level) {
    const Guesses guesses = guesses_of(drafter_, state, shape.level_rule.max_candidates, shape.softmax_over);
    kernels::grow_level(guesses.logits, guesses.ids, guesses.log_sums, shape.level_rule, shape.most_live,
                        trees);
    const int64_t rows = bytes.is_cpu() ? trees.row_count.item<int32_t>() : row_capacity;
    if (level == shape.levels || rows == 0) break;
    state = drafter_.extend(state, trees.rows[0].narrow(0, 0, rows), trees.rows[1].narrow(0, 0, rows), &kv);
  }
  if (!shape.select) return bytes;
  const at::Tensor remaining_bytes = at::empty({count * bytes_of_tree(shape.remaining)}, bytes.options());
  kernels::GrowingTrees remaining = trees_in(remaining_bytes, shape.remaining);
  kernels::select_nodes(trees, *shape.select, remaining);
  return remaining_bytes;
}

DraftState DraftRunner::read(const DraftInput& input, std::span<const int64_t> frontier) {
  if (input.next_ids.empty()) return {};
  const Timer timer(seconds_);
  const at::NoGradGuard no_grad;
  warm_ = true;
  const PassInputs on_device = to_device(inputs_of(input, frontier), drafter_.device());
  DraftKv kv{&cache_, first_layer_, on_device.placement};
  return drafter_.prime(Features::concatenated(input.parts), on_device.ids, {}, on_device.wanted, &kv);
}

DraftRunner::Key DraftRunner::key_of(const PassShape& inputs, const GrowthShape& shape) {
  const kernels::LevelRule& rule = shape.level_rule;
  const int64_t select = !shape.select ? 0 : shape.select->paths_to_last_level ? 1 : 2;
  return {{inputs.rows, inputs.pages, inputs.wanted},
          {shape.nodes, shape.levels, shape.most_live, shape.softmax_over, shape.planned, shape.remaining,
           select, rule.max_candidates, rule.most_a_level, rule.by_log_probability, rule.best_so_far},
          {rule.top_p, rule.relative_cut}};
}

at::Tensor DraftRunner::replay(const GatherFeatures& gather, const PassInputs& inputs,
                               const GrowthShape& shape) {
  const PassShape place = shape_for(inputs);
  const Key key = key_of(place, shape);
  auto found = captured_.find(key);
  if (found == captured_.end())
    found = captured_.emplace(key, Captured{PaddedInputs(place, inputs, drafter_.device()), {}}).first;
  Captured& entry = found->second;
  entry.inputs.upload(inputs, cache_.spare_slot());
  const Features features = gather(entry.inputs.on_device(), place.rows);
  warm_ = graph_runner_.run(entry.work,
                            [&] { entry.results = run_draft(features, entry.inputs.on_device(), shape); });
  return entry.results;
}

DraftRunner::GatherFeatures DraftRunner::gatherer_of(const DraftInput& input) {
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

DraftRunner::GatherFeatures DraftRunner::gatherer_of(const UnverifiedTrees& unverified,
                                                     const DraftInput& input,
                                                     DeviceVerification& verification) {
  return [this, &unverified, &input, &verification](const PassInputs& on_device, int64_t rows) {
    verification.launch(on_device);
    std::vector<Features> parts{unverified.features};
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
Features DraftRunner::in_place(int64_t rows, const Features& like,
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

}  // namespace clover::model
