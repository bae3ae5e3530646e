#include "infer/bench/bench.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <set>

#include "data/files/error.h"
#include "infer/requests/decode_flags.h"
#include "infer/requests/report.h"
#include "infer/requests/run_requests.h"

namespace clover::infer {
namespace {

using nlohmann::json;

/// The measurements of one configuration.
struct Measurements {
  std::vector<RunOutcome> rounds;
  std::vector<double> ratio_to_off;  // per round: its speed / that of plain decoding
  std::vector<bool> differs;  // per request: whether its tokens differ from plain decoding's in a round
};

bool same_batch_size(const BenchConfiguration& one, const BenchConfiguration& other) {
  return one.options.max_batch == other.options.max_batch;
}

template <typename Field>
double median_of(const std::vector<RunOutcome>& rounds, Field field) {
  std::vector<double> values;
  for (const RunOutcome& round : rounds) values.push_back(field(round));
  return median(std::move(values));
}

/// The round with the median tokens_per_step.  Rounds differ under `auto`, which chooses by measured times.
const RunOutcome& median_round(const std::vector<RunOutcome>& rounds) {
  std::vector<const RunOutcome*> sorted;
  for (const RunOutcome& round : rounds) sorted.push_back(&round);
  std::stable_sort(sorted.begin(), sorted.end(), [](const RunOutcome* one, const RunOutcome* other) {
    return one->totals.tokens_per_step() < other->totals.tokens_per_step();
  });
  return *sorted[(sorted.size() - 1) / 2];
}

json round_figures(const RunOutcome& round, double ratio_to_off) {
  return {{"seconds", round.seconds},
          {"prefill_seconds", round.stats.prefill_seconds},
          {"calibration_seconds", round.stats.calibration_seconds},
          {"decode_seconds", round.stats.decode_seconds},
          {"tokens", round.totals.tokens},
          {"passes", round.totals.passes},
          {"tokens_per_second", round.tokens_per_second()},
          {"tokens_per_step", round.totals.tokens_per_step()},
          {"time_share", time_share(round.stats)},
          {"peak_memory", round.peak_memory},
          {"ratio_to_off", ratio_to_off}};
}

json summarise(const BenchConfiguration& configuration, const Measurements& measured,
               const std::vector<BatchLine>& lines) {
  json entry = describe_growth(configuration.options, configuration.heads);
  entry.update(describe_outcome(median_round(measured.rounds)));
  if (configuration.drafter) entry["kind"] = configuration.drafter->kind();
  entry["temperature"] = lines.front().sampling.rule.temperature;
  const auto set_median = [&](const char* name, auto field) {
    entry[name] = median_of(measured.rounds, field);
  };
  set_median("seconds", [](const RunOutcome& r) { return r.seconds; });
  set_median("prefill_seconds", [](const RunOutcome& r) { return r.stats.prefill_seconds; });
  set_median("calibration_seconds", [](const RunOutcome& r) { return r.stats.calibration_seconds; });
  set_median("decode_seconds", [](const RunOutcome& r) { return r.stats.decode_seconds; });
  set_median("tokens_per_second", [](const RunOutcome& r) { return r.tokens_per_second(); });
  set_median("seconds_per_draft", [](const RunOutcome& r) { return r.stats.seconds_per_draft(); });
  set_median("read_bytes_per_second", [](const RunOutcome& r) { return r.read_bytes_per_second(); });
  for (const char* part : {"target", "drafter", "grow", "verify", "host"}) {
    entry["time_share"][part] = median_of(
        measured.rounds, [&](const RunOutcome& r) { return time_share(r.stats)[part].get<double>(); });
  }
  int64_t peak = 0;
  json rounds = json::array();
  for (size_t round = 0; round < measured.rounds.size(); ++round) {
    peak = std::max(peak, measured.rounds[round].peak_memory);
    rounds.push_back(round_figures(measured.rounds[round], measured.ratio_to_off[round]));
  }
  entry["peak_memory"] = peak;
  entry["rounds"] = rounds;
  entry["ratio_to_off"] = median(measured.ratio_to_off);
  entry["differs_from_off"] = std::count(measured.differs.begin(), measured.differs.end(), true);
  return entry;
}

/// A configuration as the log shows it, such as "clover budget 4 batch 8 with redrafter heads".
std::string log_label(const BenchConfiguration& configuration) {
  const json budget = resolved_budget(configuration.options.growth, configuration.options.budget);
  return to_string(configuration.options.growth.policy) +
         (budget.is_null() ? "" : " budget " + budget.dump()) + " batch " +
         std::to_string(configuration.options.max_batch) +
         (configuration.drafter ? " with " + configuration.drafter->kind() + " heads" : "");
}

/// The name of each entry's heads in the table: the last parts of their path, as few as make all names
/// differ.
std::vector<std::string> heads_names(const json& configurations) {
  std::vector<std::filesystem::path> folders;  // empty: none
  for (const json& entry : configurations) {
    folders.emplace_back();
    if (entry["heads"].is_null()) continue;
    const std::filesystem::path folder = entry["heads"].get<std::string>();
    const std::filesystem::path normalised = (folder / "").lexically_normal().parent_path();
    folders.back() = normalised.empty() ? folder : normalised;
  }
  const auto tails = [&folders](int64_t parts) {
    std::vector<std::string> names;
    for (const std::filesystem::path& folder : folders) {
      const int64_t skipped = std::max<int64_t>(0, std::distance(folder.begin(), folder.end()) - parts);
      std::filesystem::path tail;
      for (auto part = std::next(folder.begin(), skipped); part != folder.end(); ++part) tail /= *part;
      names.push_back(folder.empty() ? "-" : tail.string());
    }
    return names;
  };
  const auto distinct = [](const auto& names) { return std::set(names.begin(), names.end()).size(); };
  constexpr int64_t max_parts = 64;
  int64_t parts = 1;
  while (parts < max_parts && distinct(tails(parts)) < distinct(folders)) ++parts;
  return tails(parts);
}

void add_configuration(std::vector<BenchConfiguration>& planned, const BenchPlan& plan, Policy policy,
                       const NamedDrafter& heads, int64_t batch_size, int64_t budget) {
  BenchConfiguration configuration{heads.name, heads.drafter.get(), plan.base};
  configuration.options.growth = growth_rule(to_string(policy), plan.base.growth, plan.tree_sizes);
  if (!growth_policy(policy).drafts) {
    configuration.heads.clear();
    configuration.drafter = nullptr;
  }
  configuration.options.suffix = suffix_wanted(plan.suffix, policy);
  configuration.options.max_batch = batch_size;
  configuration.options.budget = budget;
  planned.push_back(configuration);
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<BenchConfiguration> plan_configurations(const BenchPlan& plan,
                                                    const std::vector<NamedDrafter>& drafters) {
  check_tree_sizes(plan.tree_sizes, plan.policies);
  std::vector<BenchConfiguration> planned;
  const std::vector<int64_t> default_budget{-1};
  for (const int64_t batch_size : plan.batch_sizes) {
    add_configuration(planned, plan, plain_policy, {}, batch_size, -1);
    for (const std::string& name : plan.policies) {
      const GrowthPolicy& policy = growth_policy(parse_policy(name));
      if (!policy.drafts) continue;
      check_heads_for(name, !drafters.empty());
      if (drafters.empty()) add_configuration(planned, plan, policy.policy, {}, batch_size, -1);
      for (const NamedDrafter& heads : drafters) {
        for (const int64_t budget :
             policy.runs_every_budget && !plan.budgets.empty() ? plan.budgets : default_budget) {
          add_configuration(planned, plan, policy.policy, heads, batch_size, budget);
        }
      }
    }
  }
  return planned;
}

namespace {

/// Runs two short requests with every configuration, untimed, so that all weights are in memory.
void warm_up(const LoadedModel& model, const std::vector<BenchConfiguration>& configurations,
             const std::vector<BatchLine>& lines) {
  std::vector<BatchLine> first_lines(lines.begin(), lines.begin() + std::min<size_t>(lines.size(), 2));
  for (BatchLine& line : first_lines)
    line.sampling.max_tokens = std::min<int64_t>(line.sampling.max_tokens, 8);
  for (const BenchConfiguration& configuration : configurations)
    run_requests(*model.target, configuration.drafter, *model.prompt_encoder, configuration.options,
                 first_lines);
}

/// Compares the last round of each configuration with that of plain decoding at the same batch size, which
/// is the first configuration of that size.
void compare_with_off(const std::vector<BenchConfiguration>& configurations,
                      std::vector<Measurements>& measured) {
  size_t off = 0;
  for (size_t i = 0; i < configurations.size(); ++i) {
    if (!same_batch_size(configurations[i], configurations[off])) off = i;
    const RunOutcome& outcome = measured[i].rounds.back();
    const RunOutcome& plain = measured[off].rounds.back();
    measured[i].ratio_to_off.push_back(outcome.tokens_per_second() / plain.tokens_per_second());
    measured[i].differs.resize(outcome.token_ids.size());
    for (size_t line = 0; line < outcome.token_ids.size(); ++line)
      if (outcome.token_ids[line] != plain.token_ids[line]) measured[i].differs[line] = true;
  }
}

}  // namespace

json run_bench(const LoadedModel& model, const std::vector<BenchConfiguration>& configurations,
               const std::vector<BatchLine>& lines, int64_t rounds,
               const std::function<void(const std::string&)>& log) {
  std::vector<Measurements> measured(configurations.size());
  warm_up(model, configurations, lines);
  // The order is reversed after each round, so that a machine that gets slower or faster favours none.
  std::vector<size_t> order(configurations.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (int64_t round = 0; round < rounds; ++round, std::reverse(order.begin(), order.end())) {
    for (const size_t i : order) {
      const BenchConfiguration& configuration = configurations[i];
      measured[i].rounds.push_back(run_requests(*model.target, configuration.drafter, *model.prompt_encoder,
                                                configuration.options, lines));
      if (measured[i].rounds.back().tokens_per_second() <= 0)
        throw data::InputError(
            "expected answers of two tokens and more to time (the first is the prompt's), found none; raise "
            "--max-tokens");
      char figures[64];
      std::snprintf(figures, sizeof figures, ": %.1f tokens/s",
                    measured[i].rounds.back().tokens_per_second());
      log("round " + std::to_string(round + 1) + " of " + std::to_string(rounds) + ", " +
          log_label(configuration) + figures);
    }
    compare_with_off(configurations, measured);
  }
  json entries = json::array();
  for (size_t i = 0; i < configurations.size(); ++i) {
    entries.push_back(summarise(configurations[i], measured[i], lines));
  }
  return entries;
}

std::string bench_table(const json& configurations, double read_bandwidth) {
  const std::vector<std::string> heads = heads_names(configurations);
  const size_t width = std::max<size_t>(5, std::ranges::max(heads, {}, &std::string::size).size());
  const auto padded = [width](const std::string& name) {
    return name + std::string(width - name.size(), ' ');
  };
  std::string table =
      "batch  draft       budget  " + padded("heads") +
      "  tokens/s  x off  tokens/step  of bound  draft ms  target  draft  verify  host  differ\n";
  for (size_t i = 0; i < configurations.size(); ++i) {
    const json& entry = configurations[i];
    const json& share = entry["time_share"];
    const auto percent = [&](const char* part) { return 100 * share[part].get<double>(); };
    char setting[64], figures[160];
    std::snprintf(setting, sizeof setting, "%5lld  %-10s  %6s  ",
                  static_cast<long long>(entry["batch_size"].get<int64_t>()),
                  entry["draft"].get<std::string>().c_str(),
                  entry["budget"].is_null() ? "-" : entry["budget"].dump().c_str());
    std::snprintf(figures, sizeof figures,
                  "  %8.1f  %5.3f  %11.3f  %7.0f%%  %8.2f  %5.0f%%  %4.0f%%  %5.0f%%  %3.0f%%  %6lld\n",
                  entry["tokens_per_second"].get<double>(), entry["ratio_to_off"].get<double>(),
                  entry["tokens_per_step"].get<double>(),
                  100 * entry["read_bytes_per_second"].get<double>() / read_bandwidth,
                  1e3 * entry["seconds_per_draft"].get<double>(), percent("target"),
                  percent("drafter") + percent("grow"), percent("verify"), percent("host"),
                  static_cast<long long>(entry["differs_from_off"].get<int64_t>()));
    table += setting + padded(heads[i]) + figures;
  }
  return table +
         "tokens/step: (tokens - first of each answer) / decode passes of each sequence, the target's own "
         "token included; off is 1.\nof bound: bytes of weights, keys and values a pass must read, over the "
         "time and the "
         "bandwidth at which these threads read memory; draft ms: what a draft of the heads took, for the "
         "whole batch; shares of the time follow.\n";
}

}  // namespace clover::infer
