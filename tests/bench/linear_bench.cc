// Speed of linear() on the matrices of a 135-million-parameter model.
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "infer/machine.h"
#include "kernels/cpu_path.h"
#include "kernels/linear.h"
#include "kernels/threads.h"

namespace {

using clover::kernels::PackedWeight;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

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

double pass_seconds(const std::vector<PackedWeight>& weights, int64_t rows) {
  const at::Tensor narrow = at::randn({rows, 576}).to(weights[0].dtype());
  const at::Tensor wide = at::randn({rows, 1536}).to(weights[0].dtype());
  std::vector<at::Tensor> out;
  for (const PackedWeight& weight : weights) {
    out.push_back(out.size() >= 4 && weight.outputs() != 49152 ? out[out.size() % 4]
                                                               : at::empty({rows, weight.outputs()}));
  }
  double best = 1e30;
  for (int round = 0; round < (rows > 64 ? 3 : 10); ++round) {
    const double start = seconds();
    for (size_t i = 0; i < weights.size(); ++i) {
      clover::kernels::linear(weights[i].inputs() == 576 ? narrow : wide, weights[i], {}, out[i]);
    }
    best = std::min(best, seconds() - start);
  }
  return best;
}

void measure(const std::string& only) {
  const std::vector<PackedWeight> weights = model_weights(at::kBFloat16);
  double bytes = 0, multiplications = 0;
  for (const PackedWeight& weight : weights) {
    bytes += static_cast<double>(weight.bytes());
    multiplications += static_cast<double>(weight.outputs() * weight.inputs());
  }
  std::printf("%.0f MB of bfloat16 weights, %d threads\n", bytes / 1e6,
              static_cast<int>(clover::kernels::threads()));
  for (clover::kernels::CpuPath path : clover::kernels::available_cpu_paths()) {
    if (!only.empty() && only != to_string(path)) continue;
    clover::kernels::set_cpu_path(path);
    std::printf("%s\n%6s %9s %7s %8s %9s %9s\n", to_string(path).c_str(), "rows", "ms", "GB/s", "of read",
                "GFLOP/s", "cost");
    double one = 0;
    for (int64_t rows : {1, 2, 3, 4, 5, 6, 8, 12, 16, 17, 32, 48, 64, 128, 256, 512}) {
      if (path == clover::kernels::CpuPath::portable && rows > 2) break;
      const double bandwidth = clover::infer::measure_read_bandwidth(static_cast<int64_t>(bytes));
      const double time = pass_seconds(weights, rows);
      if (rows == 1) one = time;
      std::printf("%6ld %9.2f %7.1f %7.0f%% %9.1f %8.2fx\n", static_cast<long>(rows), time * 1e3,
                  bytes / time / 1e9, 100 * bytes / time / bandwidth,
                  2 * multiplications * static_cast<double>(rows) / time / 1e9, time / one);
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 0;
  std::string path;
  CLI::App app{
      "Times linear() on the matrices of SmolLM2-135M in bf16, path by path: bytes of weights read a second, "
      "their\n"
      "share of the read bandwidth measured in the same run, arithmetic rate, and cost relative to one row."};
  app.add_option("--threads", threads, "Threads; 0: every core")->check(CLI::Range(0, 4096));
  app.add_option("--path", path, "Only this family of CPU kernels")
      ->check(CLI::IsMember({"portable", "avx2", "avx512_bf16", "amx"}));
  CLI11_PARSE(app, argc, argv);
  if (threads > 0) clover::kernels::set_threads(threads);
  measure(path);
  return 0;
}
