#include "model/drafters/eagle_layer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace clover::model {
namespace {

// What a state carries of each row while decoding, [F] or [F, depth] i32 each.
enum Cached { sequence, text_length, next_slot, path };

constexpr int64_t iota_size = 4096;

// What it carries in training: the row of the text, i64 [F]; then keys and values of each depth.
constexpr size_t text_row = 0, keys_begin = 1;
// What its rows share: keys and values of the text, [R, Hkv, d]; i64 [S + 1] on the CPU, where segments
// begin.
enum Shared { text_keys, text_values, segment_begins };

at::Tensor begins_of(std::span<const Segment> segments) {
  std::vector<int64_t> begins{0};
  for (const Segment& segment : segments) begins.push_back(begins.back() + segment.count);
  return at::tensor(begins, at::kLong);
}

/// Positions i64 [F] within their segments of rows `rows` i64 [F].
at::Tensor positions_in_text(const at::Tensor& rows, const at::Tensor& begins) {
  const at::Tensor on_device = begins.to(rows.device());
  return rows - on_device.index_select(0, at::searchsorted(on_device, rows, false, /*right=*/true) - 1);
}

}  // namespace

std::vector<int64_t> default_tap_layers(int64_t count) {
  std::vector<int64_t> layers;
  for (const int64_t layer : {std::min<int64_t>(2, count), count / 2, count - 3})
    if (layer > (layers.empty() ? 0 : layers.back())) layers.push_back(layer);
  return layers;
}

EagleLayer::EagleLayer(const TargetConfig& config, const DecoderWeights& initial, int64_t input_width)
    : config_(&config) {
  const BlockForm form{.input_norm = false, .input_width = input_width, .as_llama = true};
  block_ = register_module("layer", std::make_shared<DecoderBlock>(config, initial, form));
  frequencies_ = at::tensor(rope_frequencies(config), at::kDouble);
}

void EagleLayer::pack(at::ScalarType dtype) {
  frozen_dtype_ = dtype;
  Module::pack(dtype);
  frequencies_ = frequencies_.to(block_->device());
  iota_ = at::arange(iota_size, at::kInt).to(block_->device());
}

/// Rotary angles of positions i64 [F]: fp64 [F, d/2].
at::Tensor EagleLayer::angles_at(const at::Tensor& positions) const {
  return positions.to(at::kDouble).unsqueeze(1) * frequencies_.to(positions.device());
}

/// i32 [count]: 0, 1, .., on the device of the frozen weights.
at::Tensor EagleLayer::iota(int64_t count) const {
  if (count <= iota_size) return iota_.narrow(0, 0, count);
  return at::arange(count, iota_.options());
}

DraftState EagleLayer::prime(const at::Tensor& residual, const at::Tensor& input,
                             std::span<const Segment> segments, const at::Tensor& frontier, DraftKv* kv,
                             at::ScalarType training_dtype) const {
  if (kv) {
    at::Tensor x = residual;
    block_->forward_in_place(x, input.to(frozen_dtype_).contiguous(), kv->placement, *kv->cache,
                             kv->first_layer);
    DraftState state{x.index_select(0, frontier)};
    const at::Tensor length = kv->placement.rows.contiguous.index_select(0, frontier);
    state.carried = {kv->placement.rows.sequence.index_select(0, frontier), length, length,
                     at::empty({frontier.size(0), 0}, length.options())};
    return state;
  }
  const DecoderBlock::Heads heads =
      block_->project(input, block_->angles(segments, input.device()), frontier, training_dtype);
  DraftState state{block_->finish(residual.index_select(0, frontier),
                                  block_->attend(heads.query, heads.key, heads.value, segments, frontier),
                                  training_dtype)};
  state.carried = {frontier};
  state.shared = {heads.key, heads.value, begins_of(segments)};
  return state;
}

DraftState EagleLayer::extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& residual,
                              const at::Tensor& input, DraftKv* kv, at::ScalarType training_dtype) const {
  if (kv) return extend_cached(state, parents, residual, input, *kv);
  DraftState next = state.rows(parents);
  ++next.depth;
  const at::Tensor positions =
      positions_in_text(next.carried[text_row], state.shared[segment_begins]) + next.depth;
  const DecoderBlock::Heads heads = block_->project(input, angles_at(positions), {}, training_dtype);
  next.carried.push_back(heads.key);
  next.carried.push_back(heads.value);
  next.hidden = block_->finish(residual, attend_path(heads, next), training_dtype);
  return next;
}

/// Attention of guesses in training: [F, Hq * d].  Row j attends to the text up to its row, and to the keys
/// that it carries, its own the last of them.
at::Tensor EagleLayer::attend_path(const DecoderBlock::Heads& heads, const DraftState& state) const {
  const double scale = 1 / std::sqrt(static_cast<double>(config_->head_dim));
  const auto repeat_kv = [this](const at::Tensor& kv) { return block_->repeat_kv(kv); };
  std::vector<at::Tensor> own_scores, own_values;  // [F, Hq, 1], [F, Hq, d] of each depth
  for (size_t i = keys_begin; i < state.carried.size(); i += 2) {
    own_scores.push_back((heads.query * repeat_kv(state.carried[i])).sum(-1, /*keepdim=*/true) * scale);
    own_values.push_back(repeat_kv(state.carried[i + 1]));
  }
  const at::Tensor own = at::cat(own_scores, -1), rows = state.carried[text_row], rows_on_host = rows.cpu();
  const int64_t* row = rows_on_host.const_data_ptr<int64_t>();
  const int64_t* begins = state.shared[segment_begins].const_data_ptr<int64_t>();
  std::vector<at::Tensor> outputs;
  // Rows ascend, so those of a segment, F'' of them, are neighbours; T: rows of its text.
  for (int64_t segment = 0, first = 0; first < rows.size(0); ++segment) {
    int64_t last = first;
    while (last < rows.size(0) && row[last] < begins[segment + 1]) ++last;
    if (last == first) continue;
    const int64_t begin = begins[segment], keys = begins[segment + 1] - begin;
    const at::Tensor key = repeat_kv(state.shared[text_keys].slice(0, begin, begin + keys)).transpose(0, 1),
                     value =
                         repeat_kv(state.shared[text_values].slice(0, begin, begin + keys)).transpose(0, 1);
    const at::Tensor query = heads.query.slice(0, first, last).transpose(0, 1);  // [Hq, F'', d]
    const at::Tensor later = (rows.slice(0, first, last) - begin).unsqueeze(1) <
                             at::arange(keys, rows.options()).unsqueeze(0);  // [F'', T]
    const at::Tensor text = (query.matmul(key.transpose(1, 2)) * scale).masked_fill(later, -INFINITY);
    const at::Tensor weights = at::softmax(at::cat({text, own.slice(0, first, last).transpose(0, 1)}, -1),
                                           -1);  // [Hq, F'', T + depth]
    at::Tensor mixed = weights.narrow(-1, 0, keys).matmul(value);
    for (size_t i = 0; i < own_values.size(); ++i)
      mixed = mixed + weights.narrow(-1, keys + static_cast<int64_t>(i), 1) *
                          own_values[i].slice(0, first, last).transpose(0, 1);
    outputs.push_back(mixed.transpose(0, 1).reshape({last - first, config_->query_width()}));
    first = last;
  }
  return outputs.empty() ? heads.query.flatten(1) : at::cat(outputs);
}

/// Decoding.  All rows of a level continue rows of the last one, so those of a sequence take the slots behind
/// it in their order.  Padding rows of a GPU take none: they write to the spare slot.
DraftState EagleLayer::extend_cached(const DraftState& state, const at::Tensor& parents,
                                     const at::Tensor& residual, const at::Tensor& input, DraftKv& kv) const {
  const auto of_parent = [&](Cached what) { return state.carried[what].index_select(0, parents); };
  const at::Tensor own_sequence = of_parent(sequence), length = of_parent(text_length);
  at::Tensor same_sequence = own_sequence.unsqueeze(1) == own_sequence.unsqueeze(0);  // [F', F']
  at::Tensor is_real;  // [F'] bool: the rows that are no padding; undefined: all
  if (kv.real_row_count.defined()) {
    is_real = iota(parents.size(0)) < kv.real_row_count;
    same_sequence = same_sequence & is_real.unsqueeze(0);
  }
  const at::Tensor next_free = of_parent(next_slot), end = length + kv.guess_slots;
  const at::Tensor wanted_slot = next_free + same_sequence.tril(-1).sum(1, false, at::kInt);
  const at::Tensor slot = at::minimum(wanted_slot, end - 1);
  const int64_t page_size = kv.cache->page_size(), depth = state.depth + 1;
  const at::Tensor& table = kv.placement.rows.page_table;
  const at::Tensor page =
      table.index({own_sequence.to(at::kLong), slot.to(at::kLong).floor_divide(page_size)});
  at::Tensor absolute = page.to(at::kLong) * page_size + slot.to(at::kLong).remainder(page_size);
  if (is_real.defined()) {
    absolute = at::where(is_real & (wanted_slot < end), absolute, kv.cache->spare_slot());
  } else {
    TORCH_CHECK(wanted_slot.lt(end).all().item<bool>(), "EagleLayer: guesses exceed a room of ",
                kv.guess_slots, " slots.");
  }

  DraftState next;
  next.depth = depth;
  next.carried = {own_sequence, length, next_free + same_sequence.sum(1, false, at::kInt),
                  at::cat({of_parent(path), slot.unsqueeze(1)}, 1)};
  const at::Tensor angles = angles_at((length + (depth - 1)).to(at::kLong));
  const double scale = config_->rope.attention_factor;
  Placement placement;
  placement.cos = (scale * angles.cos()).to(at::kFloat);
  placement.sin = (scale * angles.sin()).to(at::kFloat);
  placement.slots = absolute;
  placement.rows = {own_sequence, length, iota(parents.size(0) + 1) * depth,
                    next.carried[path].flatten().contiguous(), table};
  next.hidden = residual;
  block_->forward_in_place(next.hidden, input.to(frozen_dtype_).contiguous(), placement, *kv.cache,
                           kv.first_layer);
  return next;
}

}  // namespace clover::model
