#pragma once

#include <cstdint>
#include <span>

#include "infer/cost/pass_cost.h"
#include "model/cache/kv_cache.h"
#include "model/graphs/pass_graphs.h"
#include "model/target/target.h"

namespace clover::infer {

/// Measures what rows of a pass cost on this machine, before it is decided how many are worth it.
class Calibration {
 public:
  /// All but `taps`, which passes are made with, are borrowed.
  Calibration(const model::Target& target, model::KvCache& cache, model::PassGraphs& passes,
              model::FeatureTaps taps, int64_t max_batch, bool typical)
      : target_(target),
        cache_(cache),
        passes_(passes),
        taps_(taps),
        max_batch_(max_batch),
        typical_(typical) {}

  /// Once: how much slower or faster the machine is than when `costs` were learnt, and what a row costs, as
  /// far as they do not say; what attention adds, whenever the longest of `sequences` (of the KvCache) is
  /// twice as long as what it knows of.
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
  bool measured_ = false;
  int64_t longest_ = 128;  // tokens of context; attention to fewer is lost in the noise of a clock
};

}  // namespace clover::infer
