#include "infer/requests/report.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "data/files/error.h"
#include "data/files/files.h"
#include "infer/program/machine.h"
#include "infer/requests/decode_flags.h"

namespace clover::infer {

using nlohmann::json;

void RequestTotals::add(const Completion& completion) {
  ++requests;
  tokens += static_cast<int64_t>(completion.token_ids.size());
  passes += completion.steps;
  prompt_tokens += completion.prompt_tokens;
  if (accepted_histogram.size() < completion.accepted_histogram.size()) {
    accepted_histogram.resize(completion.accepted_histogram.size());
  }
  for (size_t a = 0; a < completion.accepted_histogram.size(); ++a) {
    accepted_histogram[a] += completion.accepted_histogram[a];
  }
}

double RequestTotals::tokens_per_step() const {
  return passes ? static_cast<double>(tokens - requests) / static_cast<double>(passes) : 0;
}

double RunOutcome::tokens_per_second() const {
  const double decoded = static_cast<double>(stats.tokens - stats.first_tokens);
  return stats.decode_seconds > 0 ? decoded / stats.decode_seconds : 0;
}

double RunOutcome::read_bytes_per_second() const {
  return stats.decode_seconds > 0 ? static_cast<double>(stats.bytes_read) / stats.decode_seconds : 0;
}

json describe_growth(const EngineOptions& options, const std::string& heads) {
  json policy = json::object();
  const GrowthPolicy& row = growth_policy(options.growth.policy);
  if (row.reports_cuts) {
    const auto [top_p, relative_cut] = cuts_of(options.growth);
    policy = {{"top_p", top_p}, {"relative_cut", relative_cut}};
  }
  if (row.default_width > 0) policy["width"] = width_of(options.growth);
  if (row.max_depth > 0 && options.growth.depth > 0) policy["length"] = options.growth.depth;
  return {{"draft", to_string(options.growth.policy)},
          {"heads", heads.empty() ? json() : json(heads)},
          {"budget", resolved_budget(options.growth, options.budget)},
          {"policy", policy},
          {"suffix", options.suffix},
          {"suffix_answers", options.suffix_answers},
          {"verify", options.typical ? "typical" : "match"},
          {"batch_size", options.max_batch}};
}

std::string speed_note(const EngineStats& stats) {
  char note[64];
  std::snprintf(
      note, sizeof note, "%.0f tokens/s, %.2f tokens/step",
      static_cast<double>(stats.tokens) / std::max(1e-9, stats.prefill_seconds + stats.decode_seconds),
      stats.tokens_per_step());
  return note;
}

json time_share(const EngineStats& stats) {
  const double total = std::max(stats.decode_seconds, 1e-12);
  const double timed =
      stats.target_seconds + stats.drafter_seconds + stats.grow_seconds + stats.verify_seconds;
  return {{"target", stats.target_seconds / total},
          {"drafter", stats.drafter_seconds / total},
          {"grow", stats.grow_seconds / total},
          {"verify", stats.verify_seconds / total},
          {"host", std::max(0.0, stats.decode_seconds - timed) / total}};
}

json describe_outcome(const RunOutcome& outcome) {
  json categories = json::object();
  for (const auto& [name, totals] : outcome.by_category) {
    categories[name] = {{"requests", totals.requests},
                        {"tokens", totals.tokens},
                        {"passes", totals.passes},
                        {"tokens_per_step", totals.tokens_per_step()},
                        {"accepted_histogram", totals.accepted_histogram}};
  }
  return {{"requests", outcome.totals.requests},
          {"tokens", outcome.totals.tokens},
          {"passes", outcome.totals.passes},
          {"prompt_tokens", outcome.totals.prompt_tokens},
          {"shared_prompt_tokens", outcome.stats.shared_prompt_tokens},
          {"preemptions", outcome.stats.preemptions},
          {"graphs", outcome.stats.graphs},
          {"graph_seconds", outcome.stats.graph_seconds},
          {"graphs_given_up", outcome.stats.graphs_given_up},
          {"graph_bytes", outcome.stats.graph_bytes},
          {"seconds", outcome.seconds},
          {"prefill_seconds", outcome.stats.prefill_seconds},
          {"calibration_seconds", outcome.stats.calibration_seconds},
          {"decode_seconds", outcome.stats.decode_seconds},
          {"tokens_per_second", outcome.tokens_per_second()},
          {"read_bytes_per_second", outcome.read_bytes_per_second()},
          {"tokens_per_step", outcome.totals.tokens_per_step()},
          {"accepted_histogram", outcome.totals.accepted_histogram},
          {"by_category", categories},
          {"time_share", time_share(outcome.stats)},
          {"seconds_per_draft", outcome.stats.seconds_per_draft()},
          {"peak_memory", outcome.peak_memory}};
}

double measure_bandwidth(const model::Target& target) {
  const int64_t bytes = target.weight_bytes();
  return target.device().is_cpu() ? measure_read_bandwidth(bytes)
                                  : measure_copy_bandwidth(bytes, target.device());
}

json make_report(const json& configurations, const model::Target& target) {
  return make_report(configurations, target, measure_bandwidth(target));
}

json make_report(const json& configurations, const model::Target& target, double read_bandwidth) {
  return {{"machine", describe_machine(target.device())},
          {"build", describe_build()},
          {"read_bandwidth", read_bandwidth},
          {"model_bytes", target.weight_bytes()},
          {"configurations", configurations}};
}

void check_report_file(const std::string& file, const std::vector<std::string>& used,
                       const std::string& option) {
  namespace fs = std::filesystem;
  if (file.empty()) return;
  std::error_code ignored;
  const auto would_overwrite = [&](const std::string& path) {
    if (!fs::exists(file, ignored)) return data::same_file(file, path);
    if (!fs::is_directory(path, ignored)) return fs::equivalent(file, path, ignored);
    const fs::path inside =
        fs::relative(fs::weakly_canonical(file, ignored), fs::canonical(path, ignored), ignored);
    return !inside.empty() && *inside.begin() != "..";
  };
  for (const std::string& path : used) {
    if (!path.empty() && would_overwrite(path))
      throw data::InputError(option + " " + file + ": expected another file than " + path +
                             ", which is read or written, or what it holds");
  }
  data::check_writable(file);
}

void write_report(const std::string& file, const json& report) {
  if (file.empty()) return;
  data::write_file_atomically(file, report.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

std::string format_histogram(const std::vector<int64_t>& histogram) {
  int64_t total = 0;
  for (const int64_t count : histogram) total += count;
  std::string text;
  for (size_t a = 0; a < histogram.size() && total > 0; ++a) {
    char part[48];
    std::snprintf(part, sizeof part, "%s%zu: %.0f%%", a ? "  " : "", a,
                  100.0 * static_cast<double>(histogram[a]) / static_cast<double>(total));
    text += part;
  }
  return text.empty() ? "none" : text;
}

}  // namespace clover::infer
