#include "model/draft_graphs.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "kernels/gpu.h"
#include "kernels/linear.h"
#include "kernels/top_k.h"
#include "model/timer.h"

namespace clover::model {
namespace {

// Frontier rows whose logits are held at a time: large batches must not take memory by the hundred megabytes.
constexpr int64_t rows_at_once = most_recorded_rows;

at::Tensor tensor_of(std::span<const int64_t> values) {
  return at::tensor(at::IntArrayRef(values.data(), values.size()), at::kLong);
}

/// Guesses W a row, for one copy to take to the CPU: bytes [F, 12 W + 4], a row's ids, logits and log-sum.
at::Tensor packed(const at::Tensor& ids, const at::Tensor& logits, const at::Tensor& log_sums) {
  return at::cat({ids.view(at::kByte), logits.view(at::kByte), log_sums.unsqueeze(1).view(at::kByte)}, 1);
}

/// The first `rows` rows of them, waited for.
Guesses on_cpu(const at::Tensor& packed, int64_t rows) {
  if (rows == 0) return {};
  const at::Tensor here = kernels::to_host({packed.narrow(0, 0, rows)})[0];
  const int64_t width = (here.size(1) - 4) / 12;
  const auto part = [&](int64_t begin, int64_t bytes, at::ScalarType dtype) {
    at::Tensor own = at::empty({rows, bytes / static_cast<int64_t>(c10::elementSize(dtype))}, dtype);
    own.view(at::kByte).copy_(here.narrow(1, begin, bytes));
    return own;
  };
  return {part(8 * width, 4 * width, at::kFloat), part(0, 8 * width, at::kLong),
          part(12 * width, 4, at::kFloat).squeeze(1)};
}

/// Of the rows `input` ([F, D], the head's dtype), packed where they lie.
at::Tensor guesses_of(const OutputHead& head, const at::Tensor& input, int64_t width) {
  at::Tensor logits = at::empty({input.size(0), head.size()}, input.options().dtype(at::kFloat));
  kernels::linear(input, head.packed, at::Tensor(), logits);
  auto [best, ids] = kernels::top_k(logits, width);
  if (head.token_map.defined()) ids = head.token_map.index_select(0, ids.view(-1)).view(ids.sizes());
  return packed(ids, best, kernels::log_sum_exp(logits));
}

at::Tensor guesses_of(Drafter& drafter, const DraftState& state, int64_t width) {
  const OutputHead& head = drafter.head(state.depth);
  const at::Tensor input = drafter.output(state).to(head.packed.dtype()).contiguous();
  std::vector<at::Tensor> parts;
  for (int64_t begin = 0; begin < input.size(0); begin += rows_at_once)
    parts.push_back(
        guesses_of(head, input.slice(0, begin, std::min(input.size(0), begin + rows_at_once)), width));
  return parts.size() == 1 ? parts[0] : at::cat(parts);
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

Guesses DraftGraphs::prime(const SeenRows& seen, std::span<const int64_t> frontier, int64_t width) {
  const Timer timer(seconds_);
  const at::NoGradGuard no_grad;
  settled_ = true;
  if (seen.next_ids.empty()) return {};
  const PassInputs inputs = inputs_of(seen, frontier);
  const at::Tensor there =
      records(inputs) ? replay_first(seen, inputs, width)
                      : first(Features::joined(seen.parts), to_device(inputs, device_of(drafter_)), width);
  return on_cpu(there, std::ssize(frontier));
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
  return on_cpu(there, rows);
}

// What `prime` does, all on the device: run one by one or recorded.
at::Tensor DraftGraphs::first(const Features& features, const PassInputs& there, int64_t width) {
  DraftKv kv{&cache_, first_layer_, there.placement};
  const DraftState state = drafter_.prime(features, there.ids, {}, there.wanted, &kv);
  if (there.wanted.size(0) == 0) return {};
  keep(state);
  return guesses_of(drafter_, state, width);
}

// What `extend` does, the same.
at::Tensor DraftGraphs::next(const DraftState& before, const at::Tensor& parents_and_ids, int64_t width) {
  const DraftState state = drafter_.extend(before, parents_and_ids[0], parents_and_ids[1]);
  keep(state);
  return guesses_of(drafter_, state, width);
}

at::Tensor DraftGraphs::replay_first(const SeenRows& seen, const PassInputs& inputs, int64_t width) {
  const PassShape shape = shape_for(inputs);
  width = recorded_width(width, 0);
  const std::tuple key{shape.rows, shape.pages, shape.wanted, width};
  auto found = primed_.find(key);
  if (found == primed_.end())
    found = primed_.emplace(key, Primed{PaddedInputs(shape, inputs, device_of(drafter_)), {}, {}}).first;
  Primed& entry = found->second;
  entry.inputs.send(inputs, cache_.spare_slot());
  const Features features = gathered(seen.parts, shape.rows);
  state_ = {places_[0], 0};
  settled_ = recorder_.run(entry.work, [&] { entry.guesses = first(features, entry.inputs.there(), width); });
  return entry.guesses;
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

// Features where graphs look for them, of so many rows; those behind the parts' are anything.
Features DraftGraphs::gathered(std::span<const Features> parts, int64_t rows) {
  const auto gather = [&](at::Tensor Features::*of) {
    if (!(parts[0].*of).defined()) return at::Tensor();
    std::vector<at::Tensor> tensors;
    int64_t count = 0;
    for (const Features& part : parts) {
      tensors.push_back(part.*of);
      count += tensors.back().size(0);
    }
    at::Tensor& place = features_.*of;
    if (!place.defined()) place = at::zeros({most_recorded_rows, tensors[0].size(1)}, tensors[0].options());
    at::Tensor to = place.narrow(0, 0, count);
    if (tensors.size() == 1)
      to.copy_(tensors[0]);
    else
      at::cat_out(to, tensors);
    return place.narrow(0, 0, rows);
  };
  return {gather(&Features::pre_norm), gather(&Features::post_norm)};
}

// The next call continues it, which a graph does from a fixed place.
void DraftGraphs::keep(const DraftState& state) {
  state_ = state;
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
  int64_t rounded = 1;
  while (rounded < width) rounded *= 2;
  return std::min(rounded, drafter_.head(depth).size());
}

}  // namespace clover::model
