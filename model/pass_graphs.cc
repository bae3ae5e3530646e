#include "model/pass_graphs.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "kernels/gpu.h"

namespace clover::model {
namespace {

// Passes of more rows take longer than starting their kernels does.
constexpr std::array<int64_t, 13> recorded_rows{1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256};
constexpr int64_t fewest_pages = 8;
constexpr int64_t path_a_row = 32;  // tree ancestors that lie elsewhere; deeper trees are not recorded

bool wants_all(const RowBatch& batch) {
  return batch.wanted.size() == batch.ids.size();
}

}  // namespace

PassGraphs::PassGraphs(const Target& target, KvCache& cache, int64_t most_sequences, bool enabled)
    : target_(target),
      cache_(cache),
      most_sequences_(most_sequences),
      enabled_(enabled && !target.device().is_cpu()) {}

PassShape PassGraphs::shape_for(const PassInputs& inputs) const {
  const int64_t rows = *std::lower_bound(recorded_rows.begin(), recorded_rows.end(), inputs.ids.size(0));
  int64_t pages = fewest_pages;
  while (pages < inputs.placement.rows.page_table.size(1)) pages *= 2;
  // One more for the rows that fill up.
  return {rows, std::min(rows, most_sequences_) + 1, pages, rows * path_a_row};
}

TargetOutput PassGraphs::forward(const RowBatch& batch, const FeatureTaps& taps) {
  settled_ = true;
  if (!enabled_ || !wants_all(batch) || batch.size() > recorded_rows.back())
    return target_.forward(batch, cache_, taps);
  const at::NoGradGuard no_grad;
  const PassInputs inputs = target_.inputs(batch, cache_);
  const PassShape shape = shape_for(inputs);
  if (!shape.holds(inputs)) return target_.pass(to_device(inputs, target_.device()), cache_, taps);
  return replay(shape, inputs, taps);
}

TargetOutput PassGraphs::replay(const PassShape& shape, const PassInputs& inputs, const FeatureTaps& taps) {
  const Key key{shape.rows, shape.pages, taps.pre_norm, taps.post_norm};
  auto found = passes_.find(key);
  const bool first = found == passes_.end();
  if (first) found = passes_.emplace(key, Recorded{PaddedInputs(shape, inputs), {}, {}, nullptr}).first;
  Recorded& entry = found->second;
  const int64_t rows = inputs.ids.size(0);
  entry.here.fill(inputs, cache_.spare_slot());
  // The first pass of a shape runs its kernels one by one, so that the GPU has loaded them.
  settled_ = entry.graph != nullptr;
  if (first || (!entry.graph && !record(entry, taps)))
    return target_.pass(to_device(entry.here.views, target_.device()), cache_, taps).slice(0, rows);
  kernels::upload(entry.here.bytes, entry.bytes);
  entry.graph->start();
  return entry.output.slice(0, rows);
}

bool PassGraphs::record(Recorded& entry, const FeatureTaps& taps) {
  const auto begin = std::chrono::steady_clock::now();
  const int64_t free = kernels::free_gpu_memory(target_.device());
  entry.bytes = kernels::to_device(entry.here.bytes, target_.device());
  const PassInputs there = views_of(entry.bytes, entry.here.views);
  const auto body = [&] { entry.output = target_.pass(there, cache_, taps); };
  try {
    entry.graph = kernels::Graph::record(target_.device(), body);
  } catch (const c10::OutOfMemoryError&) {
    entry.output = {};
    enabled_ = false;
    return false;
  }
  ++recorded_;
  bytes_ += std::max<int64_t>(0, free - kernels::free_gpu_memory(target_.device()));
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return true;
}

}  // namespace clover::model
