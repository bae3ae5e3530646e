#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "infer/tree/grow.h"
#include "model/cache/kv_cache.h"
#include "model/graphs/draft_runner.h"
#include "model/graphs/graph_runner.h"
#include "tests/infer/engine/scripted_drafter.h"
#include "tests/infer/tree/stand_in_target.h"

// Helpers for tests that grow trees with a ScriptedDrafter (scripted_drafter.h).
namespace clover::infer::scripted {

using Path = ScriptedDrafter::Path;

// A script from a table {path, sequence number first: probabilities}; uniform for paths that are not in it.
inline ScriptedDrafter::Script from_table(int64_t vocab, std::map<Path, std::vector<double>> table) {
  return [vocab, table = std::move(table)](const Path& path) {
    std::vector<float> logits(vocab, 0.0f);
    const auto row = table.find(path);
    for (int64_t i = 0; row != table.end() && i < vocab; ++i)
      logits[i] = i < std::ssize(row->second) ? static_cast<float>(std::log(std::max(row->second[i], 1e-40)))
                                              : -92.0f;
    return logits;
  };
}

// A script with random logits: of some paths peaked, of others flat, with ties.
inline ScriptedDrafter::Script random_script(int64_t vocab, uint64_t seed) {
  return [=](const Path& path) {
    uint64_t mixed = seed;
    for (const int64_t id : path) mixed = (mixed ^ uint64_t(id + 7)) * 0x9E3779B97F4A7C15u;
    std::mt19937_64 random(mixed);
    const double sharpness = std::uniform_real_distribution<double>(0, 4)(random);
    std::normal_distribution<double> normal;
    std::vector<float> logits(vocab);
    for (float& logit : logits) logit = float(std::round(normal(random) * 8) / 8 * sharpness);
    return logits;
  };
}

// Probabilities by token id, and the ids best first; ties go to the lowest id.
struct Row {
  std::vector<double> probability;
  std::vector<int64_t> order;
};
inline Row softmax_of(const std::vector<float>& logits, const std::vector<int64_t>& allowed) {
  Row row{std::vector<double>(logits.size(), 0.0), allowed};
  double sum = 0;
  for (const int64_t id : allowed) sum += std::exp(double(logits[id]));
  for (const int64_t id : allowed) row.probability[id] = std::exp(double(logits[id])) / sum;
  std::stable_sort(row.order.begin(), row.order.end(),
                   [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  return row;
}

inline Path path_to(const CandidateTree& tree, int32_t node, int64_t sequence) {
  Path path = infer::path_to(tree, node);
  path.front() = sequence;  // in place of the root's token
  return path;
}

inline std::vector<int64_t> every_id(int64_t vocab) {
  std::vector<int64_t> ids(vocab);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// The trees of sequences with these numbers (ScriptedDrafter::sequences), each of one row so far.
inline std::vector<CandidateTree> grown(ScriptedDrafter& drafter, const std::vector<int64_t>& numbers,
                                        std::span<const int64_t> roots, const GrowthRule& rule,
                                        std::span<const GrowthLimit> limits) {
  model::KvCache cache({1, 1, 8, at::kFloat, {1, 1, 1, 1}}, 1, 1);
  model::GraphRunner graph_runner(at::kCPU, true);
  model::DraftRunner draft(drafter, cache, 0, graph_runner);
  drafter.sequences = numbers;
  model::DraftInput seen{{model::Features{}}, {roots.begin(), roots.end()}, {}};
  for (int32_t i = 0; i < std::ssize(roots); ++i) seen.segments.push_back({i, 0, 1});
  return grow(draft, seen, rule, limits);
}

}  // namespace clover::infer::scripted
