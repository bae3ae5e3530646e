#include "model/drafters/eagle_layer.h"

#include <ATen/ATen.h>

#include <cmath>

namespace clover::model {
namespace {

// Indices of DraftState::row_tensors while decoding, each i32:
enum CachedRow {
  sequence,     // [F] the row of the page table
  text_length,  // [F] tokens of the text that the row continues
  next_slot,    // [F] the sequence slot after the last one in use
  path,         // [F, depth] sequence slots of the guesses up to the row
};

constexpr int64_t iota_size = 4096;  // of EagleLayer::iota_

// Indices of DraftState::row_tensors in training: the row of the text that a path continues, i64 [F]; then,
// for each depth, keys and values of the path's guess, [F, Hkv, d] each.
constexpr size_t text_row = 0, keys_begin = 1;
// Indices of DraftState::call_tensors in training: keys and values of the text, [R, Hkv, d] each; the first
// row of each of the S segments, and R, i64 [S + 1] on the CPU.
enum CallTensor { text_keys, text_values, segment_begins };

/// CallTensor::segment_begins.
at::Tensor begins_of(std::span<const Segment> segments) {
  std::vector<int64_t> begins{0};
  for (const Segment& segment : segments) begins.push_back(begins.back() + segment.count);
  return at::tensor(begins, at::kLong);
}

/// The positions of `rows` (i64 [F], of all segments together) within their segments: i64 [F].
at::Tensor positions_in_text(const at::Tensor& rows, const at::Tensor& begins) {
  const at::Tensor on_device = begins.to(rows.device());
  return rows - on_device.index_select(0, at::searchsorted(on_device, rows, false, /*right=*/true) - 1);
}

}  // namespace

EagleLayer::EagleLayer(const TargetConfig& config, const DecoderWeights& initial, BlockForm form)
    : config_(&config) {
  form.input_norm = false;
  form.drop_biases_and_head_norms = true;
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
    state.row_tensors = {kv->placement.rows.sequence.index_select(0, frontier), length, length,
                         at::empty({frontier.size(0), 0}, length.options())};
    return state;
  }
  const DecoderBlock::Projected projected =
      block_->project(input, block_->angles(segments, input.device()), frontier, training_dtype);
  DraftState state{block_->project_output_and_mlp(
      residual.index_select(0, frontier),
      block_->attend(projected.query, projected.key, projected.value, segments, frontier), training_dtype)};
  state.row_tensors = {frontier};
  state.call_tensors = {projected.key, projected.value, begins_of(segments)};
  return state;
}

DraftState EagleLayer::extend(const DraftState& state, const at::Tensor& parents, const at::Tensor& residual,
                              const at::Tensor& input, DraftKv* kv, at::ScalarType training_dtype) const {
  if (kv) return extend_cached(state, parents, residual, input, *kv);
  DraftState next = state.rows(parents);
  ++next.depth;
  const at::Tensor positions =
      positions_in_text(next.row_tensors[text_row], state.call_tensors[segment_begins]) + next.depth;
  const DecoderBlock::Projected projected = block_->project(input, angles_at(positions), {}, training_dtype);
  next.row_tensors.push_back(projected.key);
  next.row_tensors.push_back(projected.value);
  next.hidden = block_->project_output_and_mlp(residual, attend_path(projected, next), training_dtype);
  return next;
}

/// Attention of guesses in training: [F, Hq * d].  Each row attends to the text up to its row of the text,
/// and to the guesses on its path, of which it is the last.
at::Tensor EagleLayer::attend_path(const DecoderBlock::Projected& projected, const DraftState& state) const {
  const double scale = 1 / std::sqrt(static_cast<double>(config_->head_dim));
  const auto repeat_kv = [this](const at::Tensor& kv) { return block_->repeat_kv(kv); };
  std::vector<at::Tensor> path_scores, path_values;  // [F, Hq, 1], [F, Hq, d] of each depth
  for (size_t i = keys_begin; i < state.row_tensors.size(); i += 2) {
    path_scores.push_back((projected.query * repeat_kv(state.row_tensors[i])).sum(-1, /*keepdim=*/true) *
                          scale);
    path_values.push_back(repeat_kv(state.row_tensors[i + 1]));
  }
  const at::Tensor guess_scores = at::cat(path_scores, -1), rows = state.row_tensors[text_row],
                   rows_on_host = rows.cpu();
  const int64_t* row = rows_on_host.const_data_ptr<int64_t>();
  const int64_t* begins = state.call_tensors[segment_begins].const_data_ptr<int64_t>();
  std::vector<at::Tensor> outputs;
  // Rows of the text ascend, so the F'' rows of a segment are adjacent.  The segment's text has T rows.
  for (int64_t segment = 0, first = 0; first < rows.size(0); ++segment) {
    int64_t last = first;
    while (last < rows.size(0) && row[last] < begins[segment + 1]) ++last;
    if (last == first) continue;
    const int64_t begin = begins[segment], key_count = begins[segment + 1] - begin;
    const at::Tensor
        key = repeat_kv(state.call_tensors[text_keys].slice(0, begin, begin + key_count)).transpose(0, 1),
        value = repeat_kv(state.call_tensors[text_values].slice(0, begin, begin + key_count)).transpose(0, 1);
    const at::Tensor query = projected.query.slice(0, first, last).transpose(0, 1);  // [Hq, F'', d]
    const at::Tensor is_later = (rows.slice(0, first, last) - begin).unsqueeze(1) <
                                at::arange(key_count, rows.options()).unsqueeze(0);  // [F'', T]
    const at::Tensor text_scores =
        (query.matmul(key.transpose(1, 2)) * scale).masked_fill(is_later, -INFINITY);
    const at::Tensor weights =
        at::softmax(at::cat({text_scores, guess_scores.slice(0, first, last).transpose(0, 1)}, -1),
                    -1);  // [Hq, F'', T + depth]
    at::Tensor attention = weights.narrow(-1, 0, key_count).matmul(value);
    for (size_t i = 0; i < path_values.size(); ++i)
      attention = attention + weights.narrow(-1, key_count + static_cast<int64_t>(i), 1) *
                                  path_values[i].slice(0, first, last).transpose(0, 1);
    outputs.push_back(attention.transpose(0, 1).reshape({last - first, config_->query_width()}));
    first = last;
  }
  return outputs.empty() ? projected.query.flatten(1) : at::cat(outputs);
}

/// `extend` while decoding.  The rows are a new level of the trees.  Those of one sequence take, in their
/// order, the next slots after the levels before.  On a GPU, padding rows write to KvCache::padding_slot
/// instead.
DraftState EagleLayer::extend_cached(const DraftState& state, const at::Tensor& parents,
                                     const at::Tensor& residual, const at::Tensor& input, DraftKv& kv) const {
  const auto of_parent = [&](CachedRow index) { return state.row_tensors[index].index_select(0, parents); };
  const at::Tensor sequence_of_row = of_parent(sequence), length = of_parent(text_length);
  at::Tensor same_sequence = sequence_of_row.unsqueeze(1) == sequence_of_row.unsqueeze(0);  // [F', F']
  at::Tensor is_real;  // bool [F'], false for padding rows; undefined if there are none
  if (kv.real_row_count.defined()) {
    is_real = iota(parents.size(0)) < kv.real_row_count;
    same_sequence = same_sequence & is_real.unsqueeze(0);
  }
  // A row takes the slot after those of earlier rows of its sequence.
  const at::Tensor next_free = of_parent(next_slot), end = length + kv.guess_slots;
  const at::Tensor assigned_slot = next_free + same_sequence.tril(-1).sum(1, false, at::kInt);
  const at::Tensor slot = at::minimum(assigned_slot, end - 1);  // within the page table, for padding rows too
  const int64_t page_size = kv.cache->page_size(), depth = state.depth + 1;
  const at::Tensor& table = kv.placement.rows.page_table;
  const at::Tensor page =
      table.index({sequence_of_row.to(at::kLong), slot.to(at::kLong).floor_divide(page_size)});
  at::Tensor cache_slot = page.to(at::kLong) * page_size + slot.to(at::kLong).remainder(page_size);
  if (is_real.defined()) {
    cache_slot = at::where(is_real & (assigned_slot < end), cache_slot, kv.cache->padding_slot());
  } else {
    TORCH_CHECK(assigned_slot.lt(end).all().item<bool>(), "EagleLayer: guesses exceed a room of ",
                kv.guess_slots, " slots.");
  }

  DraftState next;
  next.depth = depth;
  next.row_tensors = {sequence_of_row, length, next_free + same_sequence.sum(1, false, at::kInt),
                      at::cat({of_parent(path), slot.unsqueeze(1)}, 1)};
  const RotationFactors factors = rotation_factors(*config_, angles_at((length + (depth - 1)).to(at::kLong)));
  Placement placement;
  placement.cos = factors.cos;
  placement.sin = factors.sin;
  placement.slots = cache_slot;
  placement.rows = {sequence_of_row, length, iota(parents.size(0) + 1) * depth,
                    next.row_tensors[path].flatten().contiguous(), table};
  next.hidden = residual;
  block_->forward_in_place(next.hidden, input.to(frozen_dtype_).contiguous(), placement, *kv.cache,
                           kv.first_layer);
  return next;
}

}  // namespace clover::model
