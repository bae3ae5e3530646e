#include "infer/cost/calibration.h"

#include <algorithm>
#include <utility>

#include "kernels/gpu/gpu.h"
#include "model/graphs/captured_sizes.h"
#include "model/graphs/timer.h"

namespace clover::infer {

void Calibration::run(std::span<const int32_t> sequences, PassCost& costs) {
  if (!std::exchange(measured_rows_, true)) {
    if (costs.timed_row_counts() > 0) rescale(costs);
    measure_rows(costs);
  }
  const auto length = [this](int32_t sequence) { return cache_.length(sequence); };
  const auto longest = std::ranges::max_element(sequences, {}, length);
  if (longest == sequences.end() ||
      length(*longest) < 2 * std::max(measured_context_, costs.attention_context()))
    return;
  measured_context_ = length(*longest);
  measure_attention(*longest, costs);
}

/// Seconds of a pass of so many rows without context; 0 where the cache has no room for them.
double Calibration::measure(int64_t rows) {
  const int32_t sequence = cache_.open();
  const double seconds = cache_.fits(sequence, rows) ? timed_pass(sequence, rows) : 0;
  cache_.close(sequence);
  return seconds;
}

// Of two passes the faster one counts, because the very first pass warms caches.
void Calibration::rescale(PassCost& costs) {
  double measured_seconds = 0, learnt_seconds = 0;
  for (const int64_t rows : {1, 4}) {
    const double seconds = std::min(measure(rows), measure(rows));
    if (seconds == 0) return;
    measured_seconds += seconds;
    learnt_seconds += costs.expected_seconds(rows);
  }
  costs.rescale(measured_seconds / learnt_seconds);
}

// Times small row counts twice, because decisions depend on them most.  Stops once twice the rows take nearly
// twice as long, because larger counts will too.  Skips counts that earlier runs have timed often enough.
void Calibration::measure_rows(PassCost& costs) {
  constexpr double nearly_twice = 1.6, enough_timings = 3;
  const auto time_pass = [&](int64_t rows) {
    const double seconds = measure(rows);
    costs.observe_calibration(rows, seconds);
    return seconds;
  };
  // The very first pass warms caches.  1 row is timed twice at once: CostCurve then drops the slow first
  // timing.
  for (const int64_t rows : {1, 1, 2, 4, 8, 16, 1, 2, 4, 8})
    if (!costs.has_timings(rows, enough_timings)) time_pass(rows);
  // A CPU's rows cost long before this; a GPU's may be nearly free as far as passes are captured.
  const int64_t most = target_.device().is_cpu() ? 64 : model::max_captured_rows;
  double half_seconds = costs.expected_seconds(8);  // of a pass of half the rows
  for (int64_t rows = 16; rows <= std::min(most, max_batch_ * 16); rows *= 2) {
    const double seconds =
        costs.has_timings(rows, enough_timings) ? costs.expected_seconds(rows) : time_pass(rows);
    if (seconds > nearly_twice * half_seconds) return;
    half_seconds = seconds;
  }
}

// Passes without and with context alternate, because the machine's clock may change meanwhile.
void Calibration::measure_attention(int32_t sequence, PassCost& costs) {
  constexpr int64_t rows = 4;
  const int32_t empty_sequence = cache_.open();
  const int64_t context = cache_.length(sequence);
  if (context + rows < target_.config().context && cache_.fits(empty_sequence, rows) &&
      cache_.fits(sequence, rows)) {
    double seconds_without = timed_pass(empty_sequence, rows), seconds_with = timed_pass(sequence, rows);
    seconds_without = std::min(seconds_without, timed_pass(empty_sequence, rows));
    seconds_with = std::min(seconds_with, timed_pass(sequence, rows));
    costs.observe_attention(rows, context, seconds_without, seconds_with);
  }
  cache_.close(empty_sequence);
}

/// Seconds of a pass of `rows` rows, a chain after the tokens of `sequence`.  Their keys and values are
/// dropped.
double Calibration::timed_pass(int32_t sequence, int64_t rows) {
  model::RowBatch batch;
  for (int64_t row = 0; row < rows; ++row) {
    batch.add(0, sequence, static_cast<int32_t>(row) - 1);
    batch.wanted_rows.push_back(row);
  }
  batch.arg_max_only = !typical_;  // as in a greedy step
  double seconds = 0;
  {
    // On a GPU the first run loads kernels, the second captures a graph.
    const int warm_ups = target_.device().is_cpu() ? 0 : 2;
    for (int i = 0; i < warm_ups; ++i) passes_.forward(batch, taps_);
    kernels::synchronize(target_.device());
    model::Timer pass(seconds);
    const model::TargetOutput output = passes_.forward(batch, taps_);
    kernels::to_host({batch.arg_max_only ? output.arg_max : output.logits});
  }
  cache_.keep_rows(sequence, {}, target_.config().layers);
  return seconds;
}

}  // namespace clover::infer
