// Speed of tree_attention() on a layer of a 135-million-parameter model (9 query heads, 3 of keys, 64 wide,
// bf16), path by path: bytes of keys and values read a second, and arithmetic rate:
// attention_bench [THREADS [PATH [CASE]]]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cpu_path.h"

namespace {

constexpr int64_t query_heads = 9, kv_heads = 3, head_size = 64, page_size = 64;

struct Case {
  const char* name;
  int64_t sequences, before, rows;  // rows of each sequence behind `before` tokens
};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The rows of every sequence one behind the other, as when a prompt is read or a chain checked.
clover::kernels::AttentionRows rows_of(const Case& some) {
  const int64_t pages = (some.before + some.rows + page_size - 1) / page_size;
  std::vector<int> sequence, contiguous;
  for (int64_t b = 0; b < some.sequences; ++b) {
    for (int64_t r = 0; r < some.rows; ++r) {
      sequence.push_back(static_cast<int>(b));
      contiguous.push_back(static_cast<int>(some.before + r + 1));
    }
  }
  const int64_t count = static_cast<int64_t>(sequence.size());
  return {at::tensor(sequence, at::kInt), at::tensor(contiguous, at::kInt), at::zeros({count + 1}, at::kInt),
          at::empty({0}, at::kInt), at::randperm(some.sequences * pages, at::kInt).reshape({-1, pages})};
}

void measure(const Case& some) {
  const clover::kernels::AttentionRows rows = rows_of(some);
  const int64_t count = some.sequences * some.rows;
  // Layers enough that no cache holds them, as in a model.
  const int64_t bytes = rows.page_table.numel() * page_size * kv_heads * head_size * 2 * 2;
  const int64_t layers = std::clamp<int64_t>((int64_t{256} << 20) / bytes, 1, 30);
  const at::Tensor cache =
      at::randn({2, layers, rows.page_table.numel(), kv_heads, page_size, head_size}).to(at::kBFloat16);
  const at::Tensor q = at::randn({count, query_heads, head_size});
  at::Tensor out = at::empty({count, query_heads * head_size}, at::kBFloat16);
  double best = 1e30;
  for (int round = 0; round < 8; ++round) {
    const double start = seconds();
    for (int64_t layer = 0; layer < layers; ++layer)
      clover::kernels::tree_attention(q, cache[0][layer], cache[1][layer], rows, 0.125, out);
    best = std::min(best, (seconds() - start) / static_cast<double>(layers));
  }
  const double keys = static_cast<double>(count) * (some.before + 0.5 * static_cast<double>(some.rows));
  std::printf(
      "  %-34s %9.1f us %7.1f GB/s %8.1f GFLOP/s\n", some.name, best * 1e6,
      static_cast<double>(some.sequences * (some.before + some.rows)) * kv_heads * head_size * 4 / best / 1e9,
      keys * query_heads * head_size * 4 / best / 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) at::set_num_threads(std::atoi(argv[1]));
  std::printf("%d threads\n", at::get_num_threads());
  for (clover::kernels::CpuPath path : clover::kernels::available_cpu_paths()) {
    if (argc > 2 ? to_string(path) != argv[2] : path == clover::kernels::CpuPath::portable) continue;
    clover::kernels::set_cpu_path(path);
    std::printf("%s\n", to_string(path).c_str());
    int number = 0;
    for (const Case& some : {Case{"1 sequence, 1 row, context 256", 1, 256, 1},
                             {"32 sequences, 1 row, context 256", 32, 256, 1},
                             {"8 sequences, 5 rows, context 512", 8, 512, 5},
                             {"1 sequence, 5 rows, context 2048", 1, 2048, 5},
                             {"a prompt of 512 tokens", 1, 0, 512},
                             {"512 tokens behind 1536", 1, 1536, 512}}) {
      if (argc <= 3 || number++ == std::atoi(argv[3])) measure(some);
    }
    std::fflush(stdout);
  }
  return 0;
}
