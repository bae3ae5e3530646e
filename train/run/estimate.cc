#include "train/run/estimate.h"

#include <algorithm>
#include <chrono>

#include "infer/program/machine.h"
#include "train/evaluate/target_answers.h"
#include "train/objective/packed_batch.h"
#include "train/run/operation_count.h"
#include "train/run/trainer.h"

namespace clover::train {
namespace {

double seconds_of_step(Trainer& trainer, int64_t step, StepMetrics& metrics) {
  const auto start = std::chrono::steady_clock::now();
  metrics = trainer.step(step);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// How many gradients of all parameters are in memory at once: one for each level of tree_sum (tree_sum.h)
/// over the micro-batches of a step.
int64_t gradients_in_memory(const FitSettings& settings) {
  int64_t levels = 1;
  for (int64_t leaves = (settings.batch + settings.micro_batch - 1) / settings.micro_batch; leaves > 1;
       leaves = (leaves + 1) / 2)
    ++levels;
  return levels;
}

int64_t bytes_of_row(const model::Target& target, const model::FeatureTaps& taps) {
  return target.config().hidden * static_cast<int64_t>(c10::elementSize(target.dtype())) *
         (int64_t{taps.pre_norm} + int64_t{taps.post_norm} + std::ssize(taps.layers));
}

/// Bytes of features that evaluations keep (TargetAnswers), at most: of each prompt with the sample's answer,
/// and with the target's answer if that is another.
int64_t evaluation_bytes(const FitJob& job) {
  int64_t rows = 0;
  for (const EvalPrompt& prompt : job.evaluation_prompts())
    rows += (prompt.answer.empty() ? 1 : 2) * (std::ssize(prompt.ids) + job.settings.eval_max_tokens);
  return std::min(rows * bytes_of_row(*job.target, TargetAnswers::taps_kept(job.drafter->taps())),
                  job.evaluation_cache_bytes());
}

}  // namespace

nlohmann::json estimate(const FitJob& job) {
  const int64_t samples = job.store.size(data::Split::train);
  int64_t rows = 0, answer_tokens = 0, parameters = 0;
  Communicator single_process;
  Trainer trainer(job, single_process);
  for (int64_t i = 0; i < samples; ++i) {
    const auto sample = job.sample(i);
    rows += useful_rows(sample, job.drafter->trained_depth(), trainer.objective().wants_teacher_row());
    answer_tokens += std::count(sample.supervised.begin(), sample.supervised.end(), uint8_t{1});
  }
  for (const auto& parameter : job.drafter->parameters()) parameters += parameter.numel();
  // fp32: the weights, two moments and the gradients.
  const int64_t training_bytes = parameters * 4 * (3 + gradients_in_memory(job.settings));

  const model::FeatureTaps wanted = trainer.objective().taps();
  const model::FeatureTaps taps =
      job.settings.feature_file.empty() ? wanted : model::FeatureTaps{true, true, wanted.layers};
  const int64_t row_bytes = bytes_of_row(*job.target, taps);
  const DataOrder order(std::ssize(job.used_samples), job.settings.batch, job.settings.seed);
  const double epochs = static_cast<double>(job.total_steps) / static_cast<double>(order.steps_per_epoch());
  const int64_t cached_bytes = epochs > 1 ? std::min(rows * row_bytes, job.settings.feature_cache) : 0;

  StepMetrics metrics;
  double operations = 0, cold = 0;
  {
    const OperationCount count;  // takes time itself
    cold = seconds_of_step(trainer, 0, metrics);
    operations = count.operations();
  }
  // The very first step also loads kernels and fills allocators.  So the second one is timed, if there is
  // one: at first it computes its features (cold), then it finds them in the cache (warm).
  const int64_t timed_step = std::min<int64_t>(1, order.steps_per_epoch() - 1);
  if (timed_step > 0) cold = seconds_of_step(trainer, timed_step, metrics);
  const double warm = seconds_of_step(trainer, timed_step, metrics);
  const double cached_share =
      rows > 0 ? std::min(1.0, static_cast<double>(cached_bytes) / static_cast<double>(rows * row_bytes)) : 0;
  const double first_epoch = std::min(epochs, 1.0), later_epochs = std::max(epochs - 1, 0.0);
  const double steps_per_epoch = static_cast<double>(order.steps_per_epoch());
  const double seconds = steps_per_epoch * (first_epoch * cold +
                                            later_epochs * (cached_share * warm + (1 - cached_share) * cold));
  const double tokens = epochs * static_cast<double>(answer_tokens);
  return {{"steps", job.total_steps},
          {"samples", samples},
          {"answer_tokens", static_cast<int64_t>(tokens)},
          {"trainable_parameters", parameters},
          {"memory_bytes",
           {{"target", job.target->weight_bytes()},
            {"weights_gradients_moments", training_bytes},
            {"features_kept", cached_bytes},
            {"evaluation_features_kept", evaluation_bytes(job)},
            {"resident_now", infer::peak_memory()}}},
          {"seconds", seconds},
          {"answer_tokens_per_second", seconds > 0 ? tokens / seconds : 0},
          {"step",
           {{"seconds_with_target", cold},
            {"seconds", warm},
            {"operations", operations},
            {"operations_per_second", warm > 0 ? operations / warm : 0}}}};
}

}  // namespace clover::train
