#include "infer/row_bench.h"

#include <ATen/ops/argmax.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "data/error.h"
#include "infer/bench.h"
#include "infer/interrupt.h"
#include "kernels/gpu.h"
#include "model/kv_cache.h"

namespace clover::infer {
namespace {

using nlohmann::json;

constexpr int64_t page_size = 64;
constexpr int64_t rows_a_pass = 256;
constexpr int steps_of_a_round = 8;

// Any ids serve: the work does not depend on them.
int64_t some_id(int64_t position, int64_t vocab) {
  return (position * 7919 + 13) % vocab;
}

model::KvCache cached_context(const model::Target& target, int64_t context, int64_t rows) {
  const int64_t pages = (context + std::max(rows, rows_a_pass)) / page_size + 2;
  model::KvCache cache(target.kv_shape(0), pages, page_size);
  const int32_t sequence = cache.open();
  for (int64_t done = 0; done < context;) {
    const int64_t count = std::min(rows_a_pass, context - done);
    model::RowBatch batch;
    std::vector<int32_t> kept;
    for (int64_t i = 0; i < count; ++i) {
      batch.add(some_id(done + i, target.config().vocab), sequence, static_cast<int32_t>(i) - 1);
      kept.push_back(static_cast<int32_t>(i));
    }
    target.forward(batch, cache, {});
    cache.keep(sequence, kept, target.config().layers);
    done += count;
    stop_if_interrupted();
  }
  return cache;
}

// A root with binary branches: paths of the lengths a candidate tree has.
model::RowBatch tree_rows(const model::Target& target, int64_t rows) {
  model::RowBatch batch;
  for (int64_t i = 0; i < rows; ++i) {
    batch.add(some_id(1000 + i, target.config().vocab), 0, static_cast<int32_t>((i + 1) / 2 - 1));
    batch.wanted.push_back(i);
  }
  return batch;
}

double step_seconds(const model::Target& target, model::KvCache& cache, const model::RowBatch& batch) {
  const auto begin = std::chrono::steady_clock::now();
  const model::TargetOutput output = target.forward(batch, cache, {});
  const at::Tensor chosen = at::argmax(output.logits, -1);
  kernels::wait_for(target.device());
  const auto end = std::chrono::steady_clock::now();
  cache.keep(0, {}, target.config().layers);  // forgets the rows
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

json run_row_bench(const model::Target& target, const std::vector<int64_t>& rows, int64_t context,
                   int64_t rounds) {
  const int64_t most = *std::max_element(rows.begin(), rows.end());
  if (context + most > target.config().context) {
    throw data::InputError("--context " + std::to_string(context) + " and --rows " + std::to_string(most) +
                           ": expected together at most the model's context of " +
                           std::to_string(target.config().context) + " tokens");
  }
  model::KvCache cache = cached_context(target, context, most);
  std::vector<std::vector<double>> seconds(rows.size()), round_seconds(rows.size());
  for (int64_t round = -1; round < rounds; ++round) {  // round -1 warms up
    for (size_t i = 0; i < rows.size(); ++i) {
      const model::RowBatch batch = tree_rows(target, rows[i]);
      std::vector<double> steps;
      for (int step = 0; step < steps_of_a_round; ++step) steps.push_back(step_seconds(target, cache, batch));
      stop_if_interrupted();
      if (round < 0) continue;
      round_seconds[i].push_back(median(steps));
      seconds[i].insert(seconds[i].end(), steps.begin(), steps.end());
    }
  }
  json entries = json::array();
  for (size_t i = 0; i < rows.size(); ++i) {
    entries.push_back({{"rows", rows[i]},
                       {"context", context},
                       {"bytes_read", target.weight_bytes() +
                                          context * model::KvCache::bytes_per_page(target.kv_shape(0), 1)},
                       {"seconds", median(seconds[i])},
                       {"rounds", round_seconds[i]}});
  }
  return entries;
}

std::string row_bench_table(const json& configurations, double read_bandwidth) {
  std::string table = " rows  context  ms/step  x first  of the bound (reading weights, keys and values)\n";
  for (const json& entry : configurations) {
    const double seconds = entry["seconds"].get<double>();
    const double floor = entry["bytes_read"].get<double>() / read_bandwidth;
    char row[120];
    std::snprintf(row, sizeof row, "%5lld  %7lld  %7.2f  %7.2f  %11.0f%%\n",
                  static_cast<long long>(entry["rows"].get<int64_t>()),
                  static_cast<long long>(entry["context"].get<int64_t>()), 1e3 * seconds,
                  seconds / configurations[0]["seconds"].get<double>(), 100 * floor / seconds);
    table += row;
  }
  return table;
}

}  // namespace clover::infer
