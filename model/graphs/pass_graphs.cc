#include "model/graphs/pass_graphs.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "model/graphs/captured_sizes.h"

namespace clover::model {
namespace {

// AttentionRows::path has room for so many slots per row: a row's ancestors in its tree.  Deeper trees are
// not captured.
constexpr int64_t path_slots_per_row = 32;

/// Replaces the first of on_device.ids by `ids`, if that is defined (PassGraphs::forward).
void replace_first_ids(const at::Tensor& ids, const PassInputs& on_device) {
  if (!ids.defined()) return;
  at::Tensor first = on_device.ids.narrow(0, 0, ids.size(0));
  at::clamp_min_out(first, ids, 0);
}

/// A tensor at the same address that does not own the memory: other graphs of the pool may write there, too.
at::Tensor unowned_view(const at::Tensor& tensor) {
  return at::for_blob(tensor.mutable_data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .options(tensor.options())
      .target_device(tensor.device())
      .make_tensor();
}

}  // namespace

PassShape PassGraphs::shape_for(const PassInputs& inputs) const {
  const int64_t rows = padded_rows(inputs.ids.size(0));
  // One sequence more for padding rows.
  return {rows, std::min(rows, max_sequences_) + 1, padded_pages(inputs.placement.rows.page_table.size(1)),
          rows * path_slots_per_row, 0};
}

TargetOutput PassGraphs::forward(const RowBatch& batch, const FeatureTaps& taps,
                                 const at::Tensor& first_ids) {
  warm_ = true;
  const at::NoGradGuard no_grad;
  const PassInputs inputs = target_.inputs(batch, cache_);
  const bool all_rows_wanted = !inputs.wanted_rows.defined();
  if (graph_runner_.enabled() && all_rows_wanted && batch.size() <= max_captured_rows) {
    const PassShape shape = shape_for(inputs);
    if (shape.holds(inputs)) return replay(shape, inputs, taps, first_ids);
  }
  const PassInputs on_device = to_device(inputs, target_.device());
  replace_first_ids(first_ids, on_device);
  return target_.pass(on_device, cache_, taps);
}

TargetOutput PassGraphs::replay(const PassShape& shape, const PassInputs& inputs, const FeatureTaps& taps,
                                const at::Tensor& first_ids) {
  const Key key{shape.rows, shape.pages, taps, inputs.arg_max_only};
  auto found = passes_.find(key);
  if (found == passes_.end())
    found = passes_.emplace(key, Captured{PaddedInputs(shape, inputs, target_.device()), {}}).first;
  Captured& entry = found->second;
  entry.inputs.upload(inputs, cache_.padding_slot());
  replace_first_ids(first_ids, entry.inputs.on_device());
  const bool was_captured = entry.work.graph != nullptr;
  warm_ = graph_runner_.run(entry.work, [&] {
    entry.output = {};  // frees the memory of a failed capture's results for the second try
    entry.output = target_.pass(entry.inputs.on_device(), cache_, taps);
  });
  // Logits take much memory, so all graphs write theirs to the same memory.  Without a graph the output is
  // not kept, as the shape may never come again.
  if (entry.work.graph && !was_captured && entry.output.logits.defined())
    entry.output.logits = unowned_view(entry.output.logits);
  const TargetOutput output = entry.output.slice(0, inputs.ids.size(0));
  if (!entry.work.graph) entry.output = {};
  return output;
}

}  // namespace clover::model
