#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/kernels/linear/linear_figures.h"

// Plans of real models' products keep an H100's memory busy, by count; docs/gpu.md has the reasons for the
// limits.
namespace clover::kernels::cuda {
namespace {

constexpr int64_t kib = 1024;
constexpr int64_t of_interest = int64_t{8} << 20;  // bytes: starting a kernel takes as long as reading fewer
constexpr int64_t row_counts[] = {8,  16,  17,  20,  24,  32,  40,  48,  64, 80,
                                  96, 112, 128, 144, 160, 192, 224, 240, 256};

using Planner = LinearPlan (*)(const LinearCall& call);

LinearPlan planned(const LinearCall& call) {
  return linear_plan(call, Hopper::room());
}

/// What is wrong with one product's plan.
std::vector<std::string> faults_of(const PlanFigures& figures, int64_t rows) {
  std::vector<std::string> faults;
  if (figures.in_flight < 40 * kib && !figures.whole_blocks) faults.push_back("too few weights on their way");
  // Behind that tiles read rows so often that the cache is the limit; what is left of bandwidth is held
  // below.
  constexpr int64_t most_rows_of_memory = 96;
  if (rows <= most_rows_of_memory && figures.second_level > Hopper::second_level)
    faults.push_back("more than the second-level cache gives");
  if (figures.tensor_cores > 0.8) faults.push_back("tensor cores are slower than memory");
  const double least_share = rows <= 96 ? 0.9 : rows <= 128 ? 0.85 : rows <= 160 ? 0.75 : 0.36;
  if (figures.share < least_share) faults.push_back("too little of the bandwidth is expected");
  return faults;
}

/// The same of a layer, whose products follow each other: its bytes by share of bandwidth.
std::vector<std::string> faults_of_layer(const std::vector<std::pair<double, PlanFigures>>& products,
                                         int64_t rows) {
  double bytes = 0, time = 0, lost = 0;
  for (const auto& [size, figures] : products) {
    bytes += size, time += size / figures.share;
    lost += size / figures.share * std::max(0.0, figures.last_round - figures.filled);
  }
  std::vector<std::string> faults;
  // Behind 160 rows 13B's output and down are 160 blocks where 128 run at once.
  const double most_lost = rows <= 160 ? 0.12 : 0.15;
  if (lost / time > most_lost) faults.push_back("last rounds leave multiprocessors without work");
  const double least_share = rows <= 96    ? 0.96
                             : rows <= 128 ? 0.87
                             : rows <= 160 ? 0.77
                             : rows <= 192 ? 0.58
                                           : 0.48;
  if (bytes / time < least_share) faults.push_back("too little of the bandwidth is expected of a layer");
  return faults;
}

std::vector<std::string> faults_of(Planner plan) {
  std::vector<std::string> faults;
  const std::vector<NamedProduct> products = products_of_models();
  for (const int64_t rows : row_counts) {
    std::vector<std::pair<double, PlanFigures>> layer;
    for (const NamedProduct& product : products) {
      const auto note = [&](const std::vector<std::string>& found) {
        for (const std::string& fault : found) {
          std::ostringstream line;
          line << product.model << ", " << product.name << ", " << rows << " rows: " << fault;
          faults.push_back(line.str());
        }
      };
      const LinearPlan chosen = plan(product.of_rows(rows));
      if (product.bytes() > of_interest &&
          (chosen.kernel == LinearPlan::Kernel::few) != (rows <= max_few_rows_with_clusters))
        note({"by another kernel than its rows ask for"});
      if (chosen.kernel != LinearPlan::Kernel::clusters || product.bytes() <= of_interest) continue;
      const PlanFigures figures = figures_of(product, rows, chosen.clusters);
      note(faults_of(figures, rows));
      if (product.name != "vocabulary") layer.emplace_back(product.bytes(), figures);
      if (product.name == "down") note(faults_of_layer(std::exchange(layer, {}), rows));
    }
  }
  return faults;
}

TEST(LinearPlanFigures, KeepMemoryBusy) {
  EXPECT_THAT(faults_of(planned), testing::IsEmpty());
}

LinearPlan with_two_stages(const LinearCall& call) {
  LinearPlan plan = planned(call);
  plan.clusters.stages = 2;
  return plan;
}
LinearPlan in_tiles_of_256(const LinearCall& call) {
  LinearPlan plan = planned(call);
  if (plan.kernel == LinearPlan::Kernel::clusters) plan.clusters = ClusterPlan::of(256);
  return plan;
}
LinearPlan in_tiles_of_eight(const LinearCall& call) {
  LinearPlan plan = planned(call);
  if (plan.kernel == LinearPlan::Kernel::clusters) plan.clusters = ClusterPlan::of(8);
  return plan;
}

TEST(LinearPlanFigures, WorsePlansAreFound) {
  EXPECT_THAT(faults_of(with_two_stages),
              testing::Contains(testing::HasSubstr("too few weights on their way")));
  EXPECT_THAT(faults_of(in_tiles_of_256), testing::Contains(testing::HasSubstr("second-level cache")));
  EXPECT_THAT(faults_of(in_tiles_of_eight), testing::Not(testing::IsEmpty()));
}

}  // namespace
}  // namespace clover::kernels::cuda
