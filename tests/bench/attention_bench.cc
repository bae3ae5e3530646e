// Speed of tree_attention() on one layer, beside LibTorch's own attention on the same queries, keys and
// values laid out as that one likes them: attention_bench --help
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/files/files.h"
#include "infer/program/machine.h"
#include "kernels/attention/attention.h"
#include "kernels/cpu/cpu_path.h"
#include "kernels/cpu/threads.h"
#include "kernels/gpu/gpu.h"

namespace {

namespace kernels = clover::kernels;
using nlohmann::json;

constexpr int64_t page_size = 64;

struct Case {
  const char* name;
  int64_t query_heads, kv_heads, head_size;  // of the layer
  int64_t sequences, before, rows;           // rows of each sequence behind `before` tokens

  int64_t length() const { return before + rows; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(head_size)); }
  /// Of keys and values, read once for all rows of a sequence.
  double bytes() const {
    return static_cast<double>(sequences * length() * kv_heads * head_size) * 2 * sizeof(at::BFloat16);
  }
  double operations() const {
    const double keys = static_cast<double>(before) + 0.5 * static_cast<double>(rows + 1);
    return static_cast<double>(sequences * rows * query_heads * head_size) * keys * 4;
  }
};

/// A layer of SmolLM2-135M, for the CPU, and of Vicuna-7B and Llama-3.1-8B, for a GPU.
const std::vector<Case> on_cpu{{"1 sequence, 1 row, context 256", 9, 3, 64, 1, 256, 1},
                               {"32 sequences, 1 row, context 256", 9, 3, 64, 32, 256, 1},
                               {"8 sequences, 5 rows, context 512", 9, 3, 64, 8, 512, 5},
                               {"1 sequence, 5 rows, context 2048", 9, 3, 64, 1, 2048, 5},
                               {"a prompt of 512 tokens", 9, 3, 64, 1, 0, 512},
                               {"512 tokens behind 1536", 9, 3, 64, 1, 1536, 512}};
const std::vector<Case> on_gpu{{"7B: 16 sequences, 1 row, context 4096", 32, 32, 128, 16, 4096, 1},
                               {"7B: 16 sequences, 5 rows, context 4096", 32, 32, 128, 16, 4096, 5},
                               {"7B: 48 sequences, 5 rows, context 512", 32, 32, 128, 48, 512, 5},
                               {"8B: 16 sequences, 1 row, context 4096", 32, 8, 128, 16, 4096, 1},
                               {"8B: 16 sequences, 5 rows, context 4096", 32, 8, 128, 16, 4096, 5},
                               {"8B: 1 sequence, 5 rows, context 32768", 32, 8, 128, 1, 32768, 5},
                               {"7B: a prompt of 2048 tokens", 32, 32, 128, 1, 0, 2048}};

/// The rows of every sequence one behind the other, as when a prompt is read or a chain checked.
kernels::AttentionRows rows_of(const Case& some, at::Device device) {
  const int64_t pages = (some.length() + page_size - 1) / page_size;
  std::vector<int> sequence, contiguous;
  for (int64_t b = 0; b < some.sequences; ++b) {
    for (int64_t r = 0; r < some.rows; ++r) {
      sequence.push_back(static_cast<int>(b));
      contiguous.push_back(static_cast<int>(some.before + r + 1));
    }
  }
  const auto place = [&](const at::Tensor& tensor) { return kernels::to_device(tensor, device); };
  const int64_t count = static_cast<int64_t>(sequence.size());
  return {place(at::tensor(sequence, at::kInt)), place(at::tensor(contiguous, at::kInt)),
          place(at::zeros({count + 1}, at::kInt)), place(at::empty({0}, at::kInt)),
          place(at::randperm(some.sequences * pages, at::kInt).reshape({-1, pages}))};
}

/// On a GPU behind a first time, during which the host runs ahead: what it takes to start kernels is hidden
/// where they are not shorter still.
double seconds_of(at::Device device, const std::function<void()>& body) {
  if (device.is_cpu()) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  body();
  const auto begin = kernels::record_event(device);
  body();
  const auto end = kernels::record_event(device);
  end->wait();
  return end->seconds_since(*begin);
}

/// Seconds a layer: the best of `ours`'s rounds and of `theirs`'s, which take turns, over layers enough that
/// no cache holds them, as in a model, and on a GPU often enough to take milliseconds.
struct Times {
  double ours = 1e30, theirs = 1e30;
};
Times measure(const Case& some, at::Device device) {
  const int64_t layers = std::clamp<int64_t>(static_cast<int64_t>((1 << 28) / some.bytes()), 1, 30);
  const int64_t enough = std::max<int64_t>(layers, static_cast<int64_t>(4e9 / some.bytes()));
  const int64_t times = device.is_cpu() ? layers : enough;
  const int64_t count = some.sequences * some.rows;
  const auto bf16 = at::TensorOptions(at::kBFloat16).device(device);
  kernels::AttentionRows rows = rows_of(some, device);
  const at::Tensor q = at::randn({count, some.query_heads, some.head_size}, bf16.dtype(at::kFloat));
  at::Tensor out = at::empty({count, some.query_heads * some.head_size}, bf16);
  const at::Tensor cache =
      at::randn({2, layers, rows.page_table.numel(), some.kv_heads, page_size, some.head_size}, bf16);
  rows.plan = kernels::plan_attention(rows, some.query_heads, cache[0][0]);

  // LibTorch's flash kernels: [B, heads, tokens, d], each sequence's keys in a row; behind cached tokens
  // without a mask, so that the last row's keys are everyone's.
  const at::Tensor their_q = q.reshape({some.sequences, some.rows, some.query_heads, some.head_size})
                                 .transpose(1, 2)
                                 .to(at::kBFloat16);
  const auto theirs_of = [&](int64_t part, int64_t layer) {
    return cache[part][layer]
        .index_select(0, rows.page_table.flatten())
        .reshape({some.sequences, -1, some.kv_heads, page_size, some.head_size})
        .transpose(1, 2)
        .reshape({some.sequences, some.kv_heads, -1, some.head_size})
        .narrow(2, 0, some.length());
  };
  std::vector<at::Tensor> keys, values;
  for (int64_t layer = 0; layer < layers; ++layer) {
    keys.push_back(theirs_of(0, layer));
    values.push_back(theirs_of(1, layer));
  }
  Times best;
  for (int round = 0; round < 8; ++round) {
    const double ours = seconds_of(device, [&] {
      for (int64_t i = 0; i < times; ++i)
        kernels::tree_attention(q, cache[0][i % layers], cache[1][i % layers], rows, some.scale(), out);
    });
    const double theirs = seconds_of(device, [&] {
      for (int64_t i = 0; i < times; ++i)
        at::scaled_dot_product_attention(their_q, keys[i % layers], values[i % layers], {}, 0,
                                         /*is_causal=*/some.before == 0, some.scale(),
                                         /*enable_gqa=*/some.query_heads != some.kv_heads);
    });
    best = {std::min(best.ours, ours / static_cast<double>(times)),
            std::min(best.theirs, theirs / static_cast<double>(times))};
  }
  return best;
}

json entry_of(const Case& some, const Times& times, double bandwidth) {
  const double read = some.bytes() / times.ours;
  return {{"name", some.name},
          {"sequences", some.sequences},
          {"rows", some.rows},
          {"context", some.before},
          {"microseconds", times.ours * 1e6},
          {"gigabytes_per_second", read / 1e9},
          {"of_bandwidth", read / bandwidth},
          {"gigaflops", some.operations() / times.ours / 1e9},
          {"libtorch_over_ours", times.theirs / times.ours}};
}

void print(const json& entry) {
  const auto number = [&](const char* key) { return entry[key].get<double>(); };
  std::printf("  %-40s %9.1f us %7.1f GB/s %5.0f%% %9.1f GFLOP/s %6.2f\n",
              entry["name"].get<std::string>().c_str(), number("microseconds"),
              number("gigabytes_per_second"), 100 * number("of_bandwidth"), number("gigaflops"),
              number("libtorch_over_ours"));
  std::fflush(stdout);
}

struct Options {
  std::string device = "cpu", path, report;
  int threads = 0;
  std::optional<size_t> only;
};

void run(const Options& options) {
  if (options.threads > 0) kernels::set_threads(options.threads);
  json all = json::array();
  const auto run_cases = [&](const std::string& title, at::Device device, const std::vector<Case>& cases) {
    const double bandwidth = device.is_cpu()
                                 ? clover::infer::measure_read_bandwidth(1 << 28)
                                 : clover::infer::measure_copy_bandwidth(int64_t{1} << 30, device);
    std::printf("%s, %.1f GB/s\n", title.c_str(), bandwidth / 1e9);
    for (size_t i = 0; i < cases.size(); ++i) {
      if (options.only && *options.only != i) continue;
      all.push_back(entry_of(cases[i], measure(cases[i], device), bandwidth));
      print(all.back());
    }
  };
  if (options.device != "cpu") {
    at::globalContext().setSDPUseCuDNN(false);  // its flash kernels are what to compare with
    const at::Device named(options.device == "cuda" ? "cuda:0" : options.device);
    const at::Device device = kernels::open_gpu(named.index());
    run_cases(kernels::gpu_name(device), device, on_gpu);
  }
  for (kernels::CpuPath available : kernels::available_cpu_paths()) {
    const std::string name = to_string(available);
    if (options.device != "cpu" ||
        (options.path.empty() ? available == kernels::CpuPath::portable : name != options.path))
      continue;
    kernels::set_cpu_path(available);
    run_cases(name, at::kCPU, on_cpu);
  }
  if (!options.report.empty())
    clover::data::write_file_atomically(options.report, json{{"cases", all}}.dump(1) + "\n");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Times tree_attention() in bf16 on one layer: keys and values read a second, their share of the "
      "bandwidth\n"
      "(of reading on the CPU, of copying on a GPU), arithmetic, and how many times ours LibTorch's own "
      "attention\n"
      "takes for the same work."};
  app.add_option("--device", options.device, "cpu, or cuda or cuda:N with layers of 7B and 8B models");
  app.add_option("--threads", options.threads, "Threads on the CPU; 0: every core")
      ->check(CLI::Range(0, 4096));
  app.add_option("--path", options.path, "Only this family of CPU kernels")
      ->check(CLI::IsMember({"portable", "avx2", "avx512", "avx512_bf16", "amx"}));
  app.add_option("--case", options.only, "Only this line of the table, from 0")
      ->check(CLI::Range(size_t{0}, std::max(on_cpu.size(), on_gpu.size()) - 1));
  app.add_option("--json", options.report, "Write all figures here");
  CLI11_PARSE(app, argc, argv);
  at::NoGradGuard no_grad;
  try {
    run(options);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "attention_bench: %s\n", error.what_without_backtrace());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attention_bench: %s\n", error.what());
    return 2;
  }
  return 0;
}
