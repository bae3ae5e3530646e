#pragma once

#include <cstdint>
#include <span>

#include "infer/cost/pass_cost.h"
#include "model/cache/kv_cache.h"
#include "model/graphs/pass_graphs.h"
#include "model/target/target.h"

namespace clover::infer {

/// Times passes of the target, so that `auto` knows what rows cost on this machine before it chooses trees.
class Calibration {
 public:
  /// `taps`: the features that the drafter reads, which passes copy out.  `max_batch`: sequences decoded at
  /// once.  `typical`: passes compute logits, which typical verification needs, instead of the arg-max alone.
  /// `target`, `cache` and `passes` are borrowed.
  Calibration(const model::Target& target, model::KvCache& cache, model::PassGraphs& passes,
              model::FeatureTaps taps, int64_t max_batch, bool typical)
      : target_(target),
        cache_(cache),
        passes_(passes),
        taps_(taps),
        max_batch_(max_batch),
        typical_(typical) {}

  /// The first call measures how much slower or faster the machine is now than when `costs` were learnt, and
  /// times the row counts that `costs` lack.  Every call measures what attention adds if the longest of
  /// `sequences` (numbers of the KvCache's sequences) is twice as long as at the last such measurement.
  void run(std::span<const int32_t> sequences, PassCost& costs);

 private:
  double measure(int64_t rows);
  void rescale(PassCost& costs);
  void measure_rows(PassCost& costs);
  void measure_attention(int32_t sequence, PassCost& costs);
  double timed_pass(int32_t sequence, int64_t rows);

  const model::Target& target_;
  model::KvCache& cache_;
  model::PassGraphs& passes_;
  model::FeatureTaps taps_;
  int64_t max_batch_;
  bool typical_;
  bool measured_rows_ = false;  // run() was called before
  // Tokens of context when attention was last measured.  At first a length at which attention takes no
  // measurable time.
  int64_t measured_context_ = 128;
};

}  // namespace clover::infer
