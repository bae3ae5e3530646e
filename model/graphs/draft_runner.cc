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

// Bounds on the live nodes of a level of one tree.  The first is the limit of the kernel grow_level.  The
// second is lower, because a GPU computes as many rows as could be live, even if fewer are.
constexpr int64_t max_live_nodes = 64, max_live_on_gpu = 16;

at::Tensor tensor_of(std::span<const int64_t> values) {
  return at::tensor(at::IntArrayRef(values.data(), values.size()), at::kLong);
}

// Trees with room for `nodes` nodes are packed into one u8 tensor, so that one copy takes them to the CPU:
// all ids, all parents, all scores, all states.

/// The bytes of one tree.
int64_t bytes_of_tree(int64_t nodes) {
  return 16 * nodes + kernels::tree_state_size * static_cast<int64_t>(sizeof(int32_t));
}
/// Views of packed trees.
kernels::GrowingTrees trees_in(const at::Tensor& bytes, int64_t nodes) {
  const int64_t trees = bytes.size(0) / bytes_of_tree(nodes);
  int64_t begin = 0;
  const auto part = [&](int64_t columns, at::ScalarType dtype) {
    const int64_t size = trees * columns * static_cast<int64_t>(c10::elementSize(dtype));
    const at::Tensor view = bytes.narrow(0, begin, size).view(dtype).view({trees, columns});
    begin += size;
    return view;
  };
  kernels::GrowingTrees views;
  views.ids = part(nodes, at::kLong);
  views.parent = part(nodes, at::kInt);
  views.score = part(nodes, at::kFloat);
  views.state = part(kernels::tree_state_size, at::kInt);
  return views;
}

/// How many nodes of a level can be live on a GPU.  The bounds are the number of paths of guesses, and the
/// number of nodes that can have min_joint_probability, as the probabilities of a level sum to at most 1.
int64_t max_live_of(const Growth& growth, int64_t levels) {
  int64_t live = 1;
  for (int64_t level = 1; level < levels && live < max_live_on_gpu; ++level)
    live *= growth.level_rule.max_candidates;
  float min_joint_probability = 1;
  for (const Growth::TreeLimits& tree : growth.limits)
    min_joint_probability = std::min(min_joint_probability, tree.min_joint_probability);
  constexpr float rounding = 1e-3f;
  if (min_joint_probability * static_cast<float>(max_live_on_gpu) > 1)
    live = std::min(live, padded_rows(static_cast<int64_t>((1 + rounding) / min_joint_probability)));
  return std::min(live, max_live_on_gpu);
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
  inputs.wanted_rows = tensor_of(frontier);
  return inputs;
}

PassShape DraftRunner::padded_shape_of(const PassInputs& inputs) const {
  const at::Tensor& pages = inputs.placement.rows.page_table;
  const int64_t frontier_rows = padded_rows(inputs.wanted_rows.size(0));
  // One sequence for each frontier row, and one more for padding rows.
  return {padded_rows(inputs.ids.size(0)), frontier_rows + 1,
          pages.defined() ? padded_pages(pages.size(1)) : 0, 0, frontier_rows};
}

bool DraftRunner::can_capture(const PassInputs& inputs, const GrowthShape& shape) const {
  const int64_t trees = inputs.wanted_rows.size(0),
                live = shape.level_rule.one_row_per_tree ? 1 : shape.max_live;
  return graph_runner_.enabled() && inputs.ids.size(0) <= max_captured_rows && trees <= max_captured_rows &&
         padded_rows(trees) * live <= max_captured_rows && padded_shape_of(inputs).holds(inputs);
}

kernels::GrowingTrees DraftRunner::grow(const DraftInput& input, std::span<const int64_t> frontier,
                                        const Growth& growth) {
  const Timer timer(seconds_);
  const at::NoGradGuard no_grad;
  warm_ = true;
  const GrowthShape shape = growth_shape_of(growth);
  const at::Tensor packed_trees =
      grow_on_device(gatherer_of(input), inputs_of(input, frontier, guess_slots_for(shape)), growth, shape);
  return trees_in(kernels::to_host({packed_trees})[0], shape.kept_nodes);
}

// The target's keys and values move last: only the next pass reads them, so the trees need not wait for that.
void DraftRunner::grow_ahead(const UnverifiedTrees& unverified, const DraftInput& input,
                             const Growth& growth) {
  TORCH_CHECK(!drafter_.writes_guesses(),
              "DraftRunner::grow_ahead: a drafter that writes no guesses was expected");
  const at::NoGradGuard no_grad;
  warm_ = true;
  auto launched = kernels::record_event(drafter_.device());
  DeviceVerification verification(unverified);
  const GrowthShape shape = growth_shape_of(growth);
  // Placeholders: the GPU overwrites them by the rows after which the trees grow
  // (DeviceVerification::launch).
  const std::vector<int64_t> frontier(growth.limits.size(), 0);
  const at::Tensor packed_trees =
      grow_on_device(gatherer_of(unverified, input, verification), inputs_of(input, frontier), growth, shape);
  in_flight_ = {kernels::copy_to_host_async(packed_trees), std::move(launched), shape.kept_nodes, warm_};
  cache_.compact(verification.moves(), first_layer_);
}

DraftRunner::TimedTrees DraftRunner::wait_for_trees() {
  const Timer timer(seconds_);
  TORCH_CHECK(in_flight_.launched != nullptr, "DraftRunner: no draft has been begun");
  const InFlight draft = std::exchange(in_flight_, {});
  warm_ = draft.warm;
  return {trees_in(draft.trees.wait(), draft.tree_capacity),
          draft.trees.event->seconds_since(*draft.launched)};
}

int64_t DraftRunner::guess_slots_for(const GrowthShape& shape) const {
  if (!drafter_.writes_guesses()) return 0;
  return max_guesses_written(shape.levels, shape.max_live, shape.nodes);
}

at::Tensor DraftRunner::grow_on_device(const GatherFeatures& gather, PassInputs inputs, const Growth& growth,
                                       const GrowthShape& shape) {
  inputs.trees = initial_trees(growth, shape);
  if (can_capture(inputs, shape)) return replay(gather, inputs, shape);
  const PassInputs on_device = to_device(inputs, drafter_.device());
  return run_draft(gather(on_device, 0), on_device, shape);
}

DraftRunner::GrowthShape DraftRunner::growth_shape_of(const Growth& growth) const {
  GrowthShape shape{1, 1, 1, growth.softmax_over, 0, 1, growth.level_rule, growth.select};
  for (const Growth::TreeLimits& tree : growth.limits) {
    shape.nodes = std::max(shape.nodes, tree.max_nodes);
    shape.kept_nodes = std::max(shape.kept_nodes, growth.select ? tree.max_kept : tree.max_nodes);
    shape.levels = std::max(shape.levels, tree.levels);
    shape.plan_nodes = std::max(shape.plan_nodes, std::ssize(tree.plan));
  }
  shape.level_rule.one_row_per_tree = !drafter_.autoregressive();
  const int64_t guesses = std::max<int64_t>(1, shape.nodes - 1);
  shape.max_live = growth.max_live > 0 ? growth.max_live : std::min(guesses, max_live_nodes);
  if (drafter_.device().is_cpu()) return shape;
  // All trees get the same number of levels, so that few shapes are captured.  TreeState::levels stops the
  // shallower ones.
  shape.levels = std::min(guesses, growth.levels);
  shape.nodes = next_power_of_two(shape.nodes, min_tree_capacity);
  shape.kept_nodes = next_power_of_two(shape.kept_nodes, min_tree_capacity);
  if (shape.plan_nodes > 0) shape.plan_nodes = shape.nodes;
  if (shape.level_rule.one_row_per_tree || growth.max_live > 0) return shape;
  // On the CPU only live rows are computed.  A GPU computes as many rows as could be live, because the CPU,
  // which launches the kernels, does not know how many are.
  const int64_t frontier = std::ssize(growth.limits);
  const int64_t padded_trees = frontier <= max_captured_rows ? padded_rows(frontier) : frontier;
  const int64_t rows_per_tree = std::max<int64_t>(1, max_captured_rows / padded_trees);
  shape.max_live = std::min({shape.max_live, max_live_of(growth, shape.levels), rows_per_tree});
  return shape;
}

/// PassInputs::trees, i32 [F, ..]: for each tree the TreeState of its root, which reads row i of the guesses
/// for tree i, and then its plan.
at::Tensor DraftRunner::initial_trees(const Growth& growth, const GrowthShape& shape) const {
  const int64_t width = kernels::tree_state_size + shape.plan_nodes * kernels::planned_node_size;
  const at::Tensor states = at::zeros({std::ssize(growth.limits), width}, at::kInt);
  int32_t* to = states.mutable_data_ptr<int32_t>();
  for (int32_t i = 0; i < std::ssize(growth.limits); ++i, to += width) {
    const Growth::TreeLimits& tree = growth.limits[i];
    kernels::TreeState state{.guess_row = i,
                             .max_nodes = static_cast<int32_t>(tree.max_nodes),
                             .levels = static_cast<int32_t>(tree.levels),
                             .min_score = tree.min_joint_probability,
                             .max_kept = static_cast<int32_t>(tree.max_kept)};
    if (shape.level_rule.by_log_probability) state.min_score = std::log(tree.min_joint_probability);
    std::memcpy(to, &state, sizeof state);
    if (!tree.plan.empty())
      std::memcpy(to + kernels::tree_state_size, tree.plan.data(), sizeof tree.plan[0] * tree.plan.size());
  }
  return states;
}

/// A whole draft on the drafter's device; this is what a graph captures.  Returns packed trees, u8.
at::Tensor DraftRunner::run_draft(const Features& features, const PassInputs& on_device,
                                  const GrowthShape& shape) {
  DraftKv kv{&cache_, first_layer_, on_device.placement, guess_slots_for(shape)};
  DraftState state = drafter_.prime(features, on_device.ids, {}, on_device.wanted_rows, &kv);
  const int64_t count = on_device.wanted_rows.size(0);
  const at::Tensor bytes =
      at::empty({count * bytes_of_tree(shape.nodes)}, on_device.trees.options().dtype(at::kByte));
  kernels::GrowingTrees trees = trees_in(bytes, shape.nodes);
  trees.state.copy_(on_device.trees.narrow(1, 0, kernels::tree_state_size));
  if (shape.plan_nodes > 0)
    trees.plans =
        on_device.trees.narrow(1, kernels::tree_state_size, shape.plan_nodes * kernels::planned_node_size)
            .contiguous()
            .view({count, shape.plan_nodes, kernels::planned_node_size});
  const int64_t row_capacity = shape.level_rule.one_row_per_tree ? count : count * shape.max_live;
  trees.rows = at::empty({2, row_capacity}, on_device.wanted_rows.options());
  trees.row_count = at::empty({1}, trees.state.options());
  if (!bytes.is_cpu()) kv.real_row_count = trees.row_count;
  for (int64_t level = 1;; ++level) {
    const Guesses guesses = guesses_of(drafter_, state, shape.level_rule.max_candidates, shape.softmax_over);
    kernels::grow_level(guesses.logits, guesses.ids, guesses.log_sums, shape.level_rule, shape.max_live,
                        trees);
    const int64_t rows = bytes.is_cpu() ? trees.row_count.item<int32_t>() : row_capacity;
    if (level == shape.levels || rows == 0) break;
    state = drafter_.extend(state, trees.rows[0].narrow(0, 0, rows), trees.rows[1].narrow(0, 0, rows), &kv);
  }
  if (!shape.select) return bytes;
  const at::Tensor kept_bytes = at::empty({count * bytes_of_tree(shape.kept_nodes)}, bytes.options());
  kernels::GrowingTrees kept = trees_in(kept_bytes, shape.kept_nodes);
  kernels::select_nodes(trees, *shape.select, kept);
  return kept_bytes;
}

DraftState DraftRunner::read(const DraftInput& input, std::span<const int64_t> frontier) {
  if (input.next_ids.empty()) return {};
  const Timer timer(seconds_);
  const at::NoGradGuard no_grad;
  warm_ = true;
  const PassInputs on_device = to_device(inputs_of(input, frontier), drafter_.device());
  DraftKv kv{&cache_, first_layer_, on_device.placement};
  return drafter_.prime(Features::concatenated(input.parts), on_device.ids, {}, on_device.wanted_rows, &kv);
}

DraftRunner::Key DraftRunner::key_of(const PassShape& inputs, const GrowthShape& shape) {
  const kernels::LevelRule& rule = shape.level_rule;
  const int64_t select = !shape.select ? 0 : shape.select->paths_to_last_level ? 1 : 2;
  return {{inputs.rows, inputs.pages, inputs.wanted_rows},
          {shape.nodes, shape.levels, shape.max_live, shape.softmax_over, shape.plan_nodes, shape.kept_nodes,
           select, rule.max_candidates, rule.max_nodes_per_level, rule.by_log_probability, rule.best_so_far},
          {rule.top_p, rule.relative_cut}};
}

at::Tensor DraftRunner::replay(const GatherFeatures& gather, const PassInputs& inputs,
                               const GrowthShape& shape) {
  const PassShape input_shape = padded_shape_of(inputs);
  const Key key = key_of(input_shape, shape);
  auto found = captured_.find(key);
  if (found == captured_.end())
    found = captured_.emplace(key, Captured{PaddedInputs(input_shape, inputs, drafter_.device()), {}}).first;
  Captured& entry = found->second;
  entry.inputs.upload(inputs, cache_.padding_slot());
  const Features features = gather(entry.inputs.on_device(), input_shape.rows);
  warm_ = graph_runner_.run(entry.work,
                            [&] { entry.results = run_draft(features, entry.inputs.on_device(), shape); });
  return entry.results;
}

DraftRunner::GatherFeatures DraftRunner::gatherer_of(const DraftInput& input) {
  return [this, &input](const PassInputs&, int64_t rows) {
    if (rows == 0) return Features::concatenated(input.parts);
    return in_graph_buffer(rows, input.parts[0], [&input](at::Tensor Features::*member, at::Tensor& to) {
      std::vector<at::Tensor> parts;
      for (const Features& part : input.parts) parts.push_back(part.*member);
      at::Tensor real_rows = to.narrow(0, 0, std::ssize(input.next_ids));
      if (parts.size() == 1)
        real_rows.copy_(parts[0]);
      else
        at::cat_out(real_rows, parts);
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
    return in_graph_buffer(rows, from, [&from, &verification](at::Tensor Features::*member, at::Tensor& to) {
      at::Tensor real_rows = to.narrow(0, 0, verification.drafter_rows().size(0));
      at::index_select_out(real_rows, from.*member, 0, verification.drafter_rows());
    });
  };
}

/// The first `rows` rows of the buffer that graphs read features from.  `like`: features with the same taps.
/// `fill` writes the first rows of each member; padding rows keep old values.
Features DraftRunner::in_graph_buffer(
    int64_t rows, const Features& like,
    const std::function<void(at::Tensor Features::*member, at::Tensor& buffer)>& fill) {
  Features in_buffer;
  for (const auto member : feature_members) {
    if (!(like.*member).defined()) continue;
    at::Tensor& buffer = features_.*member;
    if (!buffer.defined())
      buffer = at::zeros({max_captured_rows, (like.*member).size(1)}, (like.*member).options());
    fill(member, buffer);
    in_buffer.*member = buffer.narrow(0, 0, rows);
  }
  return in_buffer;
}

}  // namespace clover::model
