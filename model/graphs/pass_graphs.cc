#include "model/graphs/pass_graphs.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

namespace clover::model {
namespace {

constexpr int64_t path_a_row = 32;  // tree ancestors that lie elsewhere; deeper trees are not recorded

void put_first(const at::Tensor& ids, const PassInputs& there) {
  if (!ids.defined()) return;
  at::Tensor first = there.ids.narrow(0, 0, ids.size(0));
  at::clamp_min_out(first, ids, 0);
}

/// Where `tensor` lies, which the graph that writes it holds: other graphs of its pool may write there, too.
at::Tensor not_held(const at::Tensor& tensor) {
  return at::for_blob(tensor.mutable_data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .options(tensor.options())
      .target_device(tensor.device())
      .make_tensor();
}

}  // namespace

PassShape PassGraphs::shape_for(const PassInputs& inputs) const {
  const int64_t rows = recorded_rows(inputs.ids.size(0));
  // One more for the rows that fill up.
  return {rows, std::min(rows, most_sequences_) + 1, recorded_pages(inputs.placement.rows.page_table.size(1)),
          rows * path_a_row, 0};
}

TargetOutput PassGraphs::forward(const RowBatch& batch, const FeatureTaps& taps,
                                 const at::Tensor& first_ids) {
  settled_ = true;
  const at::NoGradGuard no_grad;
  const PassInputs inputs = target_.inputs(batch, cache_);
  const bool wants_all = !inputs.wanted.defined();
  if (recorder_.enabled() && wants_all && batch.size() <= most_recorded_rows) {
    const PassShape shape = shape_for(inputs);
    if (shape.holds(inputs)) return replay(shape, inputs, taps, first_ids);
  }
  const PassInputs there = to_device(inputs, target_.device());
  put_first(first_ids, there);
  return target_.pass(there, cache_, taps);
}

TargetOutput PassGraphs::replay(const PassShape& shape, const PassInputs& inputs, const FeatureTaps& taps,
                                const at::Tensor& first_ids) {
  const Key key{shape.rows, shape.pages, taps, inputs.best_only};
  auto found = passes_.find(key);
  if (found == passes_.end())
    found = passes_.emplace(key, Recorded{PaddedInputs(shape, inputs, target_.device()), {}}).first;
  Recorded& entry = found->second;
  entry.inputs.send(inputs, cache_.spare_slot());
  put_first(first_ids, entry.inputs.there());
  const bool was_recorded = entry.work.graph != nullptr;
  settled_ = recorder_.run(entry.work, [&] {
    entry.output = {};  // of a first try, whose memory may be what a second one lacks
    entry.output = target_.pass(entry.inputs.there(), cache_, taps);
  });
  // Logits take much memory: those of all graphs lie in the same, those of no graph may never be asked for
  // again.
  if (entry.work.graph && !was_recorded && entry.output.logits.defined())
    entry.output.logits = not_held(entry.output.logits);
  const TargetOutput output = entry.output.slice(0, inputs.ids.size(0));
  if (!entry.work.graph) entry.output = {};
  return output;
}

}  // namespace clover::model
