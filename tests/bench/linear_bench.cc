// Speed of linear() on the matrices of a 135-million-parameter model, or on a GPU of every product of a layer
// of larger ones.
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <vector>

#include "data/files/files.h"
#include "infer/bench/bench.h"
#include "infer/program/machine.h"
#include "kernels/cpu/cpu_path.h"
#include "kernels/cpu/threads.h"
#include "kernels/gpu/gpu.h"
#include "kernels/linear/linear.h"
#include "tests/bench/gpu_products.h"
#include "tests/kernels/linear/linear_figures.h"

namespace {

using clover::infer::median;
using clover::kernels::PackedWeight;

std::vector<PackedWeight> model_weights(at::ScalarType type) {
  std::vector<PackedWeight> weights;
  const auto add = [&](int64_t outputs, int64_t inputs) {
    weights.push_back(PackedWeight::pack({at::randn({outputs, inputs}).to(type)}));
  };
  for (int layer = 0; layer < 30; ++layer) {
    add(960, 576);
    add(576, 576);
    add(3072, 576);
    add(576, 1536);
  }
  add(49152, 576);
  return weights;
}

using Clock = std::chrono::steady_clock;

/// All products of a step of so many rows.
class Pass {
 public:
  Pass(const std::vector<PackedWeight>& weights, int64_t rows) : weights_(weights), rows_(rows) {
    narrow_ = at::randn({rows, 576}).to(weights[0].dtype());
    wide_ = at::randn({rows, 1536}).to(weights[0].dtype());
    for (const PackedWeight& weight : weights) {
      const bool again = out_.size() >= 4 && weight.outputs() != 49152;
      out_.push_back(again ? out_[out_.size() % 4] : at::zeros({rows, weight.outputs()}));
    }
  }

  void time() {
    const Clock::time_point start = Clock::now();
    for (size_t i = 0; i < weights_.size(); ++i)
      clover::kernels::linear(weights_[i].inputs() == 576 ? narrow_ : wide_, weights_[i], {}, out_[i]);
    seconds_.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }

  int64_t rows() const { return rows_; }
  double seconds() const { return median(seconds_); }

 private:
  const std::vector<PackedWeight>& weights_;
  int64_t rows_;
  at::Tensor narrow_, wide_;
  std::vector<at::Tensor> out_;
  std::vector<double> seconds_;
};

/// Row counts in turn, round after round: the machine's other tenants disturb all of them alike.
void measure_path(const std::vector<PackedWeight>& weights, const std::vector<int64_t>& row_counts,
                  int rounds) {
  double bytes = 0, multiplications = 0;
  for (const PackedWeight& weight : weights) {
    bytes += static_cast<double>(weight.bytes());
    multiplications += static_cast<double>(weight.outputs() * weight.inputs());
  }
  std::vector<Pass> passes;
  const bool portable = clover::kernels::cpu_path() == clover::kernels::CpuPath::portable;
  for (int64_t rows : row_counts)
    if (!portable || rows <= 2) passes.emplace_back(weights, rows);
  if (passes.empty()) return;
  std::vector<double> bandwidths;
  for (int round = 0; round < rounds; ++round) {
    if (round % 10 == 0)
      bandwidths.push_back(clover::infer::measure_read_bandwidth(static_cast<int64_t>(bytes)));
    for (Pass& pass : passes) pass.time();
  }
  const double bandwidth = median(bandwidths);
  std::printf("%.0f MB, read at %.1f GB/s\n%6s %9s %7s %8s %9s %9s\n", bytes / 1e6, bandwidth / 1e9, "rows",
              "ms", "GB/s", "of read", "GFLOP/s", "cost");
  for (const Pass& pass : passes) {
    const double time = pass.seconds(), rate = bytes / time;
    std::printf("%6ld %9.2f %7.1f %7.0f%% %9.1f %8.2fx\n", static_cast<long>(pass.rows()), time * 1e3,
                rate / 1e9, 100 * rate / bandwidth,
                2 * multiplications * static_cast<double>(pass.rows()) / time / 1e9,
                time / passes.front().seconds());
  }
  std::fflush(stdout);
}

void measure(const std::string& only, const std::vector<int64_t>& row_counts, int rounds) {
  const std::vector<PackedWeight> weights = model_weights(at::kBFloat16);
  for (clover::kernels::CpuPath path : clover::kernels::available_cpu_paths()) {
    if (only.empty() ? path == clover::kernels::CpuPath::portable : only != to_string(path)) continue;
    clover::kernels::set_cpu_path(path);
    std::printf("%s, %d threads: ", to_string(path).c_str(), static_cast<int>(clover::kernels::threads()));
    std::fflush(stdout);
    measure_path(weights, row_counts, rounds);
  }
}

/// What plans let an H100 do with each product, by count, as JSON.
void print_plans() {
  namespace gpu = clover::kernels::cuda;
  nlohmann::json entries = nlohmann::json::array();
  for (const gpu::NamedProduct& product : gpu::products_of_models()) {
    for (const int64_t rows : {20, 32, 40, 48, 64, 80, 96, 128, 160, 192, 240}) {
      const gpu::LinearPlan plan = gpu::linear_plan(product.of_rows(rows), gpu::Hopper::room());
      constexpr double worth_telling = 8e6;  // bytes: starting a kernel takes as long as reading fewer
      if (plan.kernel != gpu::LinearPlan::Kernel::clusters || product.bytes() < worth_telling) continue;
      const gpu::PlanFigures figures = gpu::figures_of(product, rows, plan.clusters);
      entries.push_back({{"model", product.model},
                         {"product", product.name},
                         {"rows", rows},
                         {"kernel", figures.kernel},
                         {"shared_bytes", figures.shared_bytes},
                         {"weights_in_flight", figures.in_flight},
                         {"whole_blocks", figures.whole_blocks},
                         {"second_level_bytes_per_second", figures.second_level},
                         {"last_round", figures.last_round},
                         {"tensor_cores_over_memory", figures.tensor_cores},
                         {"expected_share", figures.share}});
    }
  }
  std::printf("%s\n", entries.dump(1).c_str());
}

struct Options {
  int threads = 0, rounds = 0;
  std::vector<int64_t> rows;
  std::string path, device = "cpu", report;
  bool small = false, plans = false;
};

void measure_on_gpu(const Options& options) {
  const at::Device named(options.device == "cuda" ? "cuda:0" : options.device);
  clover::bench::ProductPlan plan;
  plan.rows = options.rows;
  if (plan.rows.empty()) plan.rows = {1, 4, 8, 16, 20, 24, 32, 48, 64, 80, 96, 128, 160, 192, 240, 256};
  if (options.rounds > 0) plan.rounds = options.rounds;
  plan.small = options.small;
  const nlohmann::json report =
      clover::bench::measure_gpu_products(clover::kernels::open_gpu(named.index()), plan);
  if (!options.report.empty()) clover::data::write_file_atomically(options.report, report.dump(1) + "\n");
}

void measure_on_cpu(const Options& options) {
  constexpr int enough_rounds = 20;
  std::vector<int64_t> rows = options.rows;
  if (rows.empty()) rows = {1, 2, 3, 4, 5, 6, 8, 12, 16, 17, 32, 48, 64, 128, 256, 512};
  measure(options.path, rows, options.rounds > 0 ? options.rounds : enough_rounds);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Times linear() in bf16.  On the CPU on the matrices of SmolLM2-135M, path by path: bytes of weights "
      "read "
      "a second,\n"
      "their share of the read bandwidth measured in the same run, arithmetic rate, and cost relative to the "
      "first row count.\n"
      "On a GPU every product of 7B and 8B models: microseconds, the weights' share of copy bandwidth, "
      "arithmetic "
      "rate."};
  app.add_option("--device", options.device, "cpu, or cuda or cuda:N");
  app.add_option("--threads", options.threads, "Threads on the CPU; 0: every core")
      ->check(CLI::Range(0, 4096));
  app.add_option(
         "--path", options.path,
         "Only this family of CPU kernels (default: all but portable, of which only 1 and 2 rows are timed)")
      ->check(CLI::IsMember({"portable", "avx2", "avx512", "avx512_bf16", "amx"}));
  app.add_option("--rows", options.rows, "Row counts")->delimiter(',')->check(CLI::Range(1, 4096));
  app.add_option("--rounds", options.rounds,
                 "Times each is measured (default: 20 on the CPU, in turn; 7 on a GPU); the median counts")
      ->check(CLI::Range(1, 10000));
  app.add_flag("--small", options.small, "On a GPU: tiny matrices, to try the program with");
  app.add_flag("--plans", options.plans, "Print what plans let an H100 do, by count, as JSON, and stop");
  app.add_option("--json", options.report, "Of a GPU: write all figures here");
  CLI11_PARSE(app, argc, argv);
  if (options.threads > 0) clover::kernels::set_threads(options.threads);
  try {
    if (options.plans) return print_plans(), 0;
    options.device == "cpu" ? measure_on_cpu(options) : measure_on_gpu(options);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "linear_bench: %s\n", error.what_without_backtrace());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "linear_bench: %s\n", error.what());
    return 2;
  }
  return 0;
}
