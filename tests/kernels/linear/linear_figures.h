#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/linear/linear_plan.h"

// What a product's plan lets an H100 do, by count: bytes on their way, what passes through the second-level
// cache, how much of the GPU works.  For linear_plan_figures_test.cc and `linear_bench --plans`.
namespace clover::kernels::cuda {

struct Hopper {
  static constexpr int64_t multiprocessors = 132;
  /// That clusters of so many blocks find, one a multiprocessor: of the 16 or 18 that share a scheduler; with
  /// two blocks on each they find all.
  static constexpr int64_t in_clusters(int blocks) { return blocks == 4 ? 128 : 120; }
  static constexpr double bandwidth = 3.0e12;     // bytes a second, copied (measured)
  static constexpr double second_level = 5.5e12;  // that the second-level cache gives (measured by others)
  static constexpr double latency = 1e-6;         // of memory under load
  static constexpr double tensor_cores = 989e12;  // operations a second

  static GpuLimits room() { return {true, true, multiprocessors}; }
};

/// A product of a model's step.
struct NamedProduct {
  std::string model, name;
  int64_t outputs, inputs;

  double bytes() const { return 2.0 * static_cast<double>(outputs * inputs); }
  LinearCall of_rows(int64_t rows) const {
    LinearCall call{};
    call.rows = rows, call.outputs = outputs, call.inputs = inputs;
    call.element = Element::bf16;
    return call;
  }
};

inline std::vector<NamedProduct> products_of_models() {
  struct Shape {
    const char* name;
    int64_t hidden, intermediate, qkv, vocab;
  };
  std::vector<NamedProduct> products;
  for (const auto& [name, hidden, intermediate, qkv, vocab] :
       {Shape{"7B", 4096, 11008, 12288, 32000}, Shape{"8B", 4096, 14336, 6144, 128256},
        Shape{"13B", 5120, 13824, 15360, 32000}, Shape{"SmolLM2", 576, 1536, 960, 49152}}) {
    products.push_back({name, "query-key-value", qkv, hidden});
    products.push_back({name, "output", hidden, hidden});
    products.push_back({name, "gate-up", 2 * intermediate, hidden});
    products.push_back({name, "down", hidden, intermediate});
    products.push_back({name, "vocabulary", vocab, hidden});
  }
  return products;
}

struct PlanFigures {
  std::string kernel;    // with the template argument that the plan chooses
  int64_t shared_bytes;  // that a block is launched with
  int64_t in_flight;     // bytes of weights on their way, a multiprocessor that has work
  bool whole_blocks;     // that is all that its blocks read
  double second_level;   // bytes a second of weights and rows, were weights read at full bandwidth
  double last_round;     // share of the time that a last round of few blocks costs beyond its bytes
  double filled;         // of it, what the next product's first weights take, which come meanwhile
  double tensor_cores;   // their time over that of reading the weights
  double share;          // of bandwidth that is expected at most
};

inline PlanFigures figures_of(const NamedProduct& product, int64_t rows, const ClusterPlan& plan) {
  const LinearCall call = product.of_rows(rows);
  constexpr int64_t chunk_bytes = ClusterPlan::panels * panel_outputs * 32 * 2;
  const int64_t at_once = ClusterPlan::blocks_per_multiprocessor(plan.rows_per_tile);
  const int64_t multiprocessors =
      at_once == 1 ? Hopper::in_clusters(KCut::segments) : Hopper::multiprocessors;
  const int64_t places = at_once * multiprocessors, blocks = plan.blocks(call);
  const int64_t rounds = blocks / places, rest = blocks % places;
  const int64_t segment = KCut(call.inputs).chunks / KCut::segments * chunk_bytes;
  const int64_t a_block = std::min(plan.stages * 2 * chunk_bytes, segment);
  const double tile = ClusterPlan::panels * panel_outputs;
  const double through = static_cast<double>(plan.row_tiles(call)) * (1 + plan.rows_per_tile / tile);
  const double full = Hopper::bandwidth * Hopper::latency;  // bytes that must be on their way
  const auto share_of = [&](int64_t running) {
    const double working =
        static_cast<double>(std::min(running, Hopper::multiprocessors)) / Hopper::multiprocessors;
    return std::min({1.0, static_cast<double>(running * a_block) / full,
                     working * Hopper::second_level / (Hopper::bandwidth * through)});
  };
  PlanFigures figures{};
  figures.kernel = "linear_clusters<" + std::to_string(plan.rows_per_tile / 8) + ">";
  figures.shared_bytes = plan.shared_bytes();
  const int64_t together = std::max<int64_t>(1, std::min(blocks, places) / multiprocessors);
  figures.in_flight = a_block * together;
  figures.whole_blocks = a_block == segment;
  figures.second_level = Hopper::bandwidth * through;
  figures.tensor_cores = 2.0 * static_cast<double>(call.outputs * call.inputs * plan.row_tiles(call)) *
                         plan.rows_per_tile / Hopper::tensor_cores / (product.bytes() / Hopper::bandwidth);
  // Blocks' times at the share of bandwidth that those reach which run beside them.
  const double in_rounds = static_cast<double>(rounds * places) / share_of(places);
  const double last = rest == 0 ? 0 : static_cast<double>(rest) / share_of(rest);
  if (rounds > 0)
    figures.last_round = 1 - static_cast<double>(blocks) / share_of(places) / (in_rounds + last);
  if (rest > 0) figures.filled = static_cast<double>((places - rest) * a_block) / product.bytes();
  figures.share = static_cast<double>(blocks) / (in_rounds + last) / std::max(1.0, figures.tensor_cores);
  return figures;
}

}  // namespace clover::kernels::cuda
