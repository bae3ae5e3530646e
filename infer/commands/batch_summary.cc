#include "infer/commands/batch_summary.h"

#include <algorithm>
#include <cstdio>

namespace clover::infer {

using nlohmann::json;

void print_counts(const BatchJob::Outcome& outcome, int64_t before) {
  std::fprintf(stderr, "%lld answered, %lld failed", static_cast<long long>(outcome.answered),
               static_cast<long long>(outcome.failed));
  if (before) std::fprintf(stderr, ", %lld done before", static_cast<long long>(before));
  std::fprintf(stderr, "\n");
}

void print_output_size(const std::string& output, int64_t lines, int64_t failed) {
  std::fprintf(stderr, "%s holds %lld lines, %lld of them errors\n", output.c_str(),
               static_cast<long long>(lines), static_cast<long long>(failed));
}

void print_figures(const RunOutcome& run) {
  std::fprintf(stderr, "prompt tokens        %lld in %.1f s, %lld of them shared\n",
               static_cast<long long>(run.totals.prompt_tokens), run.stats.prefill_seconds,
               static_cast<long long>(run.stats.shared_prompt_tokens));
  std::fprintf(stderr, "tokens               %lld in %.1f s\n", static_cast<long long>(run.totals.tokens),
               run.seconds);
  std::fprintf(stderr, "decoding             %.1f tokens/s\n", run.tokens_per_second());
  std::fprintf(stderr,
               "tokens/step          %.3f  ((tokens - first of each answer) / decode passes of each "
               "sequence; 1 without drafting)\n",
               run.totals.tokens_per_step());
  std::fprintf(stderr, "guesses kept a step  %s\n", format_histogram(run.totals.accepted_histogram).c_str());
  const json share = time_share(run.stats);
  std::fprintf(
      stderr, "time                 target %.0f%%  drafter %.0f%%  grow %.0f%%  verify %.0f%%  host %.0f%%\n",
      100 * share["target"].get<double>(), 100 * share["drafter"].get<double>(),
      100 * share["grow"].get<double>(), 100 * share["verify"].get<double>(),
      100 * share["host"].get<double>());
  if (run.stats.graphs > 0) {
    std::fprintf(stderr, "graphs               %lld recorded in %.1f s, %lld MiB of the GPU\n",
                 static_cast<long long>(run.stats.graphs), run.stats.graph_seconds,
                 static_cast<long long>(run.stats.graph_bytes >> 20));
  }
}

json batch_report_entry(const EngineOptions& engine, const std::string& heads, double temperature,
                        const RunOutcome& run, const BatchJob::Outcome& outcome) {
  json entry = describe_growth(engine, heads);
  entry.update(describe_outcome(run));
  entry["temperature"] = temperature;
  entry["answered"] = outcome.answered;
  entry["failed"] = outcome.failed;
  entry["interrupted"] = outcome.interrupted;
  entry["rounds"] = json::array({{{"seconds", run.seconds},
                                  {"tokens_per_second", run.tokens_per_second()},
                                  {"tokens_per_step", run.totals.tokens_per_step()}}});
  entry["ratio_to_off"] = nullptr;  // a batch job does not run plain decoding; bench does
  entry["differs_from_off"] = nullptr;
  return entry;
}

}  // namespace clover::infer
