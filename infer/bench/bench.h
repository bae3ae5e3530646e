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

/// A drafter, and the name that reports show for it.
struct NamedDrafter {
  std::string name;  // the folder of its heads, or such as "random medusa"; empty: plain decoding
  std::shared_ptr<model::Drafter> drafter;
};

/// What to measure: each policy with each drafter at each batch size.
struct BenchPlan {
  std::vector<std::string> policies;  // names of growth policies
  std::vector<int64_t> budgets;       // of policies that run every budget; empty: their default
  std::vector<int64_t> batch_sizes;   // sequences decoded at once
  std::string suffix = "auto";        // value of --suffix
  TreeSizes tree_sizes;               // width and depth by policy, where they are not the defaults
  EngineOptions base;                 // the options that are the same in all configurations
};

/// One combination of policy, drafter, budget and batch size to measure.
struct BenchConfiguration {
  std::string heads;                  // NamedDrafter::name; empty: none
  model::Drafter* drafter = nullptr;  // borrowed; null: none
  EngineOptions options;
};

/// The configurations of a plan.  At each batch size `off` comes first, even if the plan does not name it,
/// because the others are compared with it.  Then each policy comes once for each drafter, or once for each
/// drafter and budget (GrowthPolicy::runs_every_budget).  InputError for an unknown policy, and for one that
/// needs heads when there are none.
std::vector<BenchConfiguration> plan_configurations(const BenchPlan& plan,
                                                    const std::vector<NamedDrafter>& drafters);

/// Answers `lines` with each configuration once per round (run_requests) and measures it.  Returns
/// "configurations" of the --json, one entry each.  Times and speeds are medians over the rounds; counts and
/// tokens_per_step are those of the round with the median tokens_per_step.  "ratio_to_off" is the median of
/// the speed relative to plain decoding in the same round.  "differs_from_off" is the number of requests
/// whose tokens differ from those of plain decoding.  `log` gets a line of text after each measurement.
nlohmann::json run_bench(const LoadedModel& model, const std::vector<BenchConfiguration>& configurations,
                         const std::vector<BatchLine>& lines, int64_t rounds,
                         const std::function<void(const std::string&)>& log);

/// The results of run_bench as a table of text.  `read_bandwidth`: of the target's device, bytes per second.
std::string bench_table(const nlohmann::json& configurations, double read_bandwidth);

/// The median; 0 for no values.
double median(std::vector<double> values);

}  // namespace clover::infer
