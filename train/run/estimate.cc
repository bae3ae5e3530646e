#include "train/run/estimate.h"

#include <algorithm>
#include <chrono>

#include "infer/program/machine.h"
#include "train/objective/packed_batch.h"
#include "train/run/trainer.h"

namespace clover::train {
namespace {

double seconds_of_step(Trainer& trainer, int64_t step, StepMetrics& metrics) {
  const auto start = std::chrono::steady_clock::now();
  metrics = trainer.step(step);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// How many full sets of gradients are in memory at once: one for each level of tree_sum over micro-batches.
int64_t gradients_in_memory(const FitSettings& settings) {
  int64_t held = 1;
  for (int64_t left = (settings.batch + settings.micro_batch - 1) / settings.micro_batch; left > 1;
       left = (left + 1) / 2)
    ++held;
  return held;
}

}  // namespace

nlohmann::json estimate(const FitJob& job) {
  const int64_t samples = job.store.size(data::Split::train);
  int64_t rows = 0, answer_tokens = 0, parameters = 0;
  Communicator alone;
  Trainer trainer(job, alone);
  for (int64_t i = 0; i < samples; ++i) {
    const auto sample = job.sample(i);
    rows += useful_rows(sample, job.drafter->trained_depth(), trainer.objective().wants_teacher_row());
    answer_tokens += std::count(sample.supervised.begin(), sample.supervised.end(), uint8_t{1});
  }
  for (const auto& parameter : job.drafter->parameters()) parameters += parameter.numel();

  const model::FeatureTaps wanted = trainer.objective().taps();
  const model::FeatureTaps taps =
      job.settings.feature_file.empty() ? wanted : model::FeatureTaps{true, true, wanted.layers};
  const int64_t row_bytes = job.target->config().hidden *
                            static_cast<int64_t>(c10::elementSize(job.target->dtype())) *
                            (int64_t{taps.pre_norm} + int64_t{taps.post_norm} + std::ssize(taps.layers));
  const DataOrder order(std::ssize(job.used_samples), job.settings.batch, job.settings.seed);
  const double passes = static_cast<double>(job.total_steps) / static_cast<double>(order.steps_per_epoch());
  const int64_t kept = passes > 1 ? std::min(rows * row_bytes, job.settings.feature_cache) : 0;

  // The first time the step computes its features, the second time it finds them in the cache.
  StepMetrics metrics;
  const double cold = seconds_of_step(trainer, 0, metrics);
  const double warm = seconds_of_step(trainer, 0, metrics);
  const double share_kept =
      rows > 0 ? std::min(1.0, static_cast<double>(kept) / static_cast<double>(rows * row_bytes)) : 0;
  const double first = std::min(passes, 1.0), later = std::max(passes - 1, 0.0);
  const double steps_an_epoch = static_cast<double>(order.steps_per_epoch());
  const double seconds =
      steps_an_epoch * (first * cold + later * (share_kept * warm + (1 - share_kept) * cold));
  const double tokens = passes * static_cast<double>(answer_tokens);
  return {{"steps", job.total_steps},
          {"samples", samples},
          {"answer_tokens", static_cast<int64_t>(tokens)},
          {"trainable_parameters", parameters},
          {"memory_bytes",
           {{"target", job.target->weight_bytes()},
            {"weights_gradients_moments", parameters * 4 * (3 + gradients_in_memory(job.settings))},
            {"features_kept", kept},
            {"resident_now", infer::peak_memory()}}},
          {"seconds", seconds},
          {"answer_tokens_per_second", seconds > 0 ? tokens / seconds : 0}};
}

}  // namespace clover::train
