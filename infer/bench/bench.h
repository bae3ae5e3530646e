#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "infer/engine/engine.h"
#include "infer/requests/batch_input.h"
#include "infer/requests/loaded_model.h"

namespace clover::infer {

struct NamedDrafter {
  std::string folder;  // "" without heads
  std::shared_ptr<model::Drafter> drafter;
};

struct BenchPlan {
  std::vector<std::string> drafts;
  std::vector<int64_t> budgets;  // multiply clover and static; empty: the policy's own
  std::vector<int64_t> batch_sizes;
  int64_t rounds = 5;
  std::string suffix = "auto";
  EngineOptions base;  // everything that is not varied
};

/// One setting to measure.
struct BenchConfiguration {
  std::string heads;
  model::Drafter* drafter = nullptr;  // borrowed
  EngineOptions options;
};

/// The settings of a plan: `off` first at every batch size (it is measured whether asked for or not, being
/// what the others are compared with), auto and chain once for each heads folder, clover and static once for
/// each heads folder and budget.  InputError for unknown policies, and for ones that need heads when there
/// are none.
std::vector<BenchConfiguration> plan_configurations(const BenchPlan& plan,
                                                    const std::vector<NamedDrafter>& drafters);

/// Runs every configuration once a round, all of them within each round; returns the "configurations" of the
/// JSON contract: medians over rounds (counts, and tokens_per_step with them, of the round in the middle),
/// `ratio_to_off` the median of per-round ratios, `differs_from_off` the number of requests whose tokens
/// differ from plain decoding.  `say` hears a line now and then.
nlohmann::json run_bench(const LoadedModel& model, const std::vector<BenchConfiguration>& configurations,
                         const std::vector<BatchLine>& lines, int64_t rounds,
                         const std::function<void(const std::string&)>& say);

/// The table for people.
std::string bench_table(const nlohmann::json& configurations, double read_bandwidth);

double median(std::vector<double> values);

}  // namespace clover::infer
