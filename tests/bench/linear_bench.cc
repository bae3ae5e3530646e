// Speed of linear() on the matrices of a 135-million-parameter model, path by path: bytes of weights read a
// second, their share of the read bandwidth measured in the same run, arithmetic rate, and cost relative to
// one row:  linear_bench [THREADS [PATH]]
#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/cpu_path.h"
#include "kernels/linear.h"
#include "kernels/threads.h"

namespace {

using clover::kernels::PackedWeight;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Bytes a second of a sum over memory that no cache holds, with all threads; the best of a few rounds.
double read_bandwidth() {
  static const at::Tensor memory = at::ones({(int64_t{256} << 20) / 8}, at::kLong);
  const int64_t* words = memory.const_data_ptr<int64_t>();
  double best = 0;
  for (int round = 0; round < 4; ++round) {
    std::atomic<int64_t> total{0};
    const double start = seconds();
    clover::kernels::share_out(memory.numel(), 1, [&](int64_t begin, int64_t end) {
      const int64_t quarter = (end - begin) / 64 * 16;
      int64_t sums[4] = {};
      for (int64_t i = begin; i < begin + quarter; i += 16) {
        for (int stream = 0; stream < 4; ++stream) {
          __builtin_prefetch(words + stream * quarter + i + 256);
          __builtin_prefetch(words + stream * quarter + i + 264);
          for (int j = 0; j < 16; ++j) sums[stream] += words[stream * quarter + i + j];
        }
      }
      total += sums[0] + sums[1] + sums[2] + sums[3];
    });
    best = std::max(best, static_cast<double>(memory.nbytes()) / (seconds() - start));
    if (total == 0) std::abort();
  }
  return best;
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

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) clover::kernels::set_threads(std::atoi(argv[1]));
  const std::string only = argc > 2 ? argv[2] : "";
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
      const double bandwidth = read_bandwidth();
      const double time = pass_seconds(weights, rows);
      if (rows == 1) one = time;
      std::printf("%6ld %9.2f %7.1f %7.0f%% %9.1f %8.2fx\n", static_cast<long>(rows), time * 1e3,
                  bytes / time / 1e9, 100 * bytes / time / bandwidth,
                  2 * multiplications * static_cast<double>(rows) / time / 1e9, time / one);
      std::fflush(stdout);
    }
  }
  return 0;
}
