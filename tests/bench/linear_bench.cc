// Speed of linear() on the matrices of a 135-million-parameter model.
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <vector>

#include "infer/bench.h"
#include "infer/machine.h"
#include "kernels/cpu_path.h"
#include "kernels/linear.h"
#include "kernels/threads.h"

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

}  // namespace

int main(int argc, char** argv) {
  int threads = 0, rounds = 20;
  std::vector<int64_t> rows{1, 2, 3, 4, 5, 6, 8, 12, 16, 17, 32, 48, 64, 128, 256, 512};
  std::string path;
  CLI::App app{
      "Times linear() on the matrices of SmolLM2-135M in bf16, path by path: bytes of weights read a second, "
      "their\n"
      "share of the read bandwidth measured in the same run, arithmetic rate, and cost relative to the first "
      "row count."};
  app.add_option("--threads", threads, "Threads; 0: every core")->check(CLI::Range(0, 4096));
  app.add_option(
         "--path", path,
         "Only this family of CPU kernels (default: all but portable, of which only 1 and 2 rows are timed)")
      ->check(CLI::IsMember({"portable", "avx2", "avx512_bf16", "amx"}));
  app.add_option("--rows", rows, "Row counts, which are measured in turn")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  app.add_option("--rounds", rounds, "Times each is measured; the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  CLI11_PARSE(app, argc, argv);
  if (threads > 0) clover::kernels::set_threads(threads);
  measure(path, rows, rounds);
  return 0;
}
