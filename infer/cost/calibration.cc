#include "infer/cost/calibration.h"

#include <algorithm>
#include <utility>

#include "kernels/gpu/gpu.h"
#include "model/graphs/timer.h"

namespace clover::infer {

void Calibration::run(std::span<const int32_t> sequences, PassCost& costs) {
  if (!std::exchange(measured_, true)) {
    if (costs.points() > 0) rescale(costs);
    measure_rows(costs);
  }
  const auto length = [this](int32_t sequence) { return cache_.length(sequence); };
  const auto longest = std::ranges::max_element(sequences, {}, length);
  if (longest == sequences.end() || length(*longest) < 2 * std::max(longest_, costs.attention_context()))
    return;
  longest_ = length(*longest);
  measure_attention(*longest, costs);
}

/// Seconds of a pass of so many rows without context; 0 where the cache has no room for them.
double Calibration::measure(int64_t rows) {
  const int32_t sequence = cache_.open();
  const double seconds = cache_.fits(sequence, rows) ? timed_pass(sequence, rows) : 0;
  cache_.close(sequence);
  return seconds;
}

// The faster of two passes counts: the very first one warms caches.
void Calibration::rescale(PassCost& costs) {
  double now = 0, then = 0;
  for (const int64_t rows : {1, 4}) {
    const double seconds = std::min(measure(rows), measure(rows));
    if (seconds == 0) return;
    now += seconds;
    then += costs.at(rows);
  }
  costs.rescale(now / then);
}

// Times few rows twice, because they decide most.  Stops where twice the rows take nearly twice as long,
// because more rows will too.  Skips what earlier runs have timed often enough.
void Calibration::measure_rows(PassCost& costs) {
  constexpr double nearly_twice = 1.6, often_enough = 3;
  const auto timed = [&](int64_t rows) {
    const double seconds = measure(rows);
    costs.measure(rows, seconds);
    return seconds;
  };
  // The very first pass warms caches: CostCurve replaces a cold start.
  for (const int64_t rows : {1, 1, 2, 4, 8, 16, 1, 2, 4, 8})
    if (!costs.knows(rows, often_enough)) timed(rows);
  double before = costs.at(8);
  for (int64_t rows = 16; rows <= std::min<int64_t>(64, max_batch_ * 16); rows *= 2) {
    const double seconds = costs.knows(rows, often_enough) ? costs.at(rows) : timed(rows);
    if (seconds > nearly_twice * before) return;
    before = seconds;
  }
}

// Passes without and with context alternate, because machines speed up and slow down.
void Calibration::measure_attention(int32_t sequence, PassCost& costs) {
  constexpr int64_t rows = 4;
  const int32_t empty = cache_.open();
  const int64_t context = cache_.length(sequence);
  if (context + rows < target_.config().context && cache_.fits(empty, rows) && cache_.fits(sequence, rows)) {
    double without = timed_pass(empty, rows), with = timed_pass(sequence, rows);
    without = std::min(without, timed_pass(empty, rows));
    with = std::min(with, timed_pass(sequence, rows));
    costs.observe_attention(rows, context, without, with);
  }
  cache_.close(empty);
}

/// Seconds of a pass of a chain of `rows` rows behind the tokens of `sequence`; commits nothing.
double Calibration::timed_pass(int32_t sequence, int64_t rows) {
  model::RowBatch batch;
  for (int64_t row = 0; row < rows; ++row) {
    batch.add(0, sequence, static_cast<int32_t>(row) - 1);
    batch.wanted.push_back(row);
  }
  batch.best_only = !typical_;  // as a greedy step does
  double seconds = 0;
  {
    // On a GPU the first run loads kernels, the second captures a graph.
    const int warm_ups = target_.device().is_cpu() ? 0 : 2;
    for (int i = 0; i < warm_ups; ++i) passes_.forward(batch, taps_);
    kernels::synchronize(target_.device());
    model::Timer pass(seconds);
    const model::TargetOutput output = passes_.forward(batch, taps_);
    kernels::to_host({batch.best_only ? output.best : output.logits});
  }
  cache_.keep(sequence, {}, target_.config().layers);
  return seconds;
}

}  // namespace clover::infer
