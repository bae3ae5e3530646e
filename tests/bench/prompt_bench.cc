// Speed of reading prompts: the target's passes alone, prompts packed into them.
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "infer/bench/bench.h"
#include "kernels/cpu/cpu_path.h"
#include "kernels/cpu/threads.h"
#include "model/target/target.h"

namespace {

using clover::infer::median;
using clover::model::KvCache;
using clover::model::RowBatch;
using clover::model::Target;

/// So many prompts of so many tokens each.
struct Prompts {
  int64_t count, tokens;
  std::vector<double> seconds{}, processor_seconds{};
};

/// Of all threads of the process: beside other programs it says more than the time that passes.
double processor_time() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// One pass over rows [begin, end) of all prompts, one behind the other.
void read_rows(const Target& target, KvCache& cache, const std::vector<int32_t>& sequences, int64_t begin,
               int64_t end, int64_t tokens) {
  RowBatch batch;
  batch.arg_max_only = true;
  std::vector<int32_t> rows_of(sequences.size());
  for (int64_t row = begin; row < end; ++row) {
    const int64_t prompt = row / tokens;
    const bool first = rows_of[prompt]++ == 0;
    batch.add(1000 + 31 * row % 40000, sequences[prompt],
              first ? -1 : static_cast<int32_t>(batch.size()) - 1);
    if ((row + 1) % tokens == 0) batch.wanted_rows.push_back(batch.size() - 1);
  }
  target.forward(batch, cache, {});
  for (size_t prompt = 0; prompt < sequences.size(); ++prompt) {
    std::vector<int32_t> kept(rows_of[prompt]);
    for (size_t i = 0; i < kept.size(); ++i) kept[i] = static_cast<int32_t>(i);
    if (!kept.empty()) cache.keep_rows(sequences[prompt], kept, target.config().layers);
  }
}

void read(const Target& target, KvCache& cache, Prompts& prompts, int64_t chunk) {
  std::vector<int32_t> sequences;
  for (int64_t i = 0; i < prompts.count; ++i) sequences.push_back(cache.open());
  const auto start = std::chrono::steady_clock::now();
  const double processor_start = processor_time();
  const int64_t rows = prompts.count * prompts.tokens;
  for (int64_t row = 0; row < rows; row += chunk)
    read_rows(target, cache, sequences, row, std::min(row + chunk, rows), prompts.tokens);
  prompts.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  prompts.processor_seconds.push_back(processor_time() - processor_start);
  for (const int32_t sequence : sequences) cache.close(sequence);
}

void measure(const std::string& folder, int64_t chunk, int rounds) {
  const auto target = Target::load(folder, at::kBFloat16);
  const clover::kernels::OneTorchThread one_thread;
  KvCache cache(target->kv_shape(0), 128, 64);
  std::vector<Prompts> all{{32, 48}, {1, 512}, {1, 1200}, {1, 48}};
  for (int round = 0; round < rounds; ++round)
    for (Prompts& prompts : all) read(*target, cache, prompts, chunk);
  std::printf("%s, %ld threads, passes of up to %ld rows\n%12s %9s %9s %9s %9s\n",
              to_string(clover::kernels::cpu_path()).c_str(), static_cast<long>(clover::kernels::threads()),
              static_cast<long>(chunk), "prompts", "ms", "least ms", "CPU ms", "tokens/s");
  for (const Prompts& prompts : all) {
    const double typical = median(prompts.seconds), least = *std::ranges::min_element(prompts.seconds);
    std::printf("%5ld x %4ld %9.1f %9.1f %9.1f %9.0f\n", static_cast<long>(prompts.count),
                static_cast<long>(prompts.tokens), typical * 1e3, least * 1e3,
                median(prompts.processor_seconds) * 1e3,
                static_cast<double>(prompts.count * prompts.tokens) / typical);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 0, rounds = 5;
  int64_t chunk = 2048;
  std::string folder = "models/SmolLM2-135M-Instruct", path;
  CLI::App app{
      "Times how fast prompts are read (32 of 48 tokens, one of 512, 1200 and 48), packed into passes."};
  app.add_option("--target", folder, "Model folder")->capture_default_str();
  app.add_option("--threads", threads, "Threads; 0: every core")->check(CLI::Range(0, 4096));
  app.add_option("--path", path, "Family of CPU kernels (default: the fastest)")
      ->check(CLI::IsMember({"avx2", "avx512", "avx512_bf16", "amx"}));
  app.add_option("--chunk", chunk, "Rows of a pass at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_option("--rounds", rounds, "Times each is measured")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  if (threads > 0) clover::kernels::set_threads(threads);
  for (const clover::kernels::CpuPath some : clover::kernels::available_cpu_paths())
    if (path == to_string(some)) clover::kernels::set_cpu_path(some);
  measure(folder, chunk, rounds);
  return 0;
}
