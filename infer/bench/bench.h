#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infer/engine/engine.h"
#include "infer/requests/batch_input.h"
#include "infer/requests/decode_flags.h"
#include "infer/requests/loaded_model.h"

namespace clover::infer {

/// A drafter and the name that reports show for it.
struct NamedDrafter {
  std::string folder;  // of its heads; empty: plain decoding
  std::shared_ptr<model::Drafter> drafter;
};

/// What to measure: every policy with every drafter at every batch size.
struct BenchPlan {
  std::vector<std::string> drafts;   // names of growth policies
  std::vector<int64_t> budgets;      // for policies that run once per budget; empty: the policy's default
  std::vector<int64_t> batch_sizes;  // sequences decoded at once
  std::string suffix = "auto";       // --suffix
  TreeSizes tree_sizes;              // of policies that have a size
  EngineOptions base;                // the options that do not vary
};

/// One setting to measure.
struct BenchConfiguration {
  std::string heads;                  // folder; empty: none
  model::Drafter* drafter = nullptr;  // borrowed; null: none
  EngineOptions options;
};

/// The settings of a plan.  At every batch size `off` comes first, asked for or not, because the others are
/// compared with it.  Then each policy comes once for each drafter, or once for each drafter and budget
/// (GrowthPolicy::runs_every_budget).  InputError for an unknown policy, and for one that needs heads when
/// there are none.
std::vector<BenchConfiguration> plan_configurations(const BenchPlan& plan,
                                                    const std::vector<NamedDrafter>& drafters);

/// Measures every configuration once in every round (run_requests does the work).  Returns "configurations"
/// of the --json: medians over the rounds; counts and tokens_per_step are those of the round with the median
/// tokens_per_step.  "ratio_to_off" is the median over rounds of the speed relative to plain decoding,
/// "differs_from_off" the number of requests whose tokens differ from those of plain decoding.  `log` is
/// called with a line of text after each measurement.
nlohmann::json run_bench(const LoadedModel& model, const std::vector<BenchConfiguration>& configurations,
                         const std::vector<BatchLine>& lines, int64_t rounds,
                         const std::function<void(const std::string&)>& log);

/// The table that people read.  `read_bandwidth`: bytes per second.
std::string bench_table(const nlohmann::json& configurations, double read_bandwidth);

/// 0 for no values.
double median(std::vector<double> values);

}  // namespace clover::infer
