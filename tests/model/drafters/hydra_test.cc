// Hydra and Hydra++ against their published code (tests/golden/drafters/hydra/README.md).
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <string>

#include "data/files/safetensors.h"
#include "model/drafters/drafter.h"
#include "model/graphs/guesses.h"
#include "tests/model/drafters/own_layers.h"
#include "tests/support/goldens.h"
#include "tests/support/published_names.h"
#include "tests/support/reading.h"

namespace clover {
namespace {

using data::SafetensorsReader;
using model::DraftState;
using nlohmann::json;

struct HydraCase {
  const char* name;
  const char* folder;
  json settings;
};

class HydraOfItsAuthors : public testing::TestWithParam<HydraCase> {};

TEST_P(HydraOfItsAuthors, GuessesAreTheirs) {
  const auto folder = test::goldens() / "drafters" / GetParam().folder;
  const auto target = model::Target::load(test::goldens() / "drafters" / "target-small", at::kFloat);
  const auto drafter = model::make_drafter("hydra", GetParam().settings, target->view(), {}, true, 1);
  const auto weights = SafetensorsReader::open(folder / "published" / "hydra_lm_head.safetensors");
  const bool prefix = drafter->kv_layers() > 0;
  const at::NoGradGuard no_grad;
  test::take_weights(*drafter, weights,
                     [prefix](const std::string& name) { return test::name_of_hydra(name, prefix); });

  const auto golden = SafetensorsReader::open(folder / "golden.safetensors");
  const at::Tensor ids = golden.read("ids").clone(), logits = golden.read("path.logits").clone();
  const int64_t rows = ids.size(0) - 1;
  model::Features features;
  features.post_norm = golden.read("features").slice(0, 0, rows).clone();
  const at::Tensor frontier = at::arange(rows, at::kLong);
  model::KvCache cache(target->kv_shape(drafter->kv_layers()), 16, 4);
  const int32_t sequence = cache.open();
  test::read_text(*target, test::to_ids(ids.slice(0, 0, rows)), rows, cache, sequence);
  for (const bool frozen : {false, true}) {
    if (frozen) drafter->freeze(at::kFloat);
    const model::Segment segment{sequence, 0, static_cast<int32_t>(rows)};
    model::DraftKv kv{};
    if (frozen && prefix) kv = test::own_layers(*drafter, cache, target->config().layers, segment);
    DraftState state =
        drafter->prime(features, ids.slice(0, 1), {&segment, 1}, frontier, frozen && prefix ? &kv : nullptr);
    for (int64_t depth = 0; depth < drafter->max_depth(); ++depth) {
      const int64_t valid = rows - depth;
      if (depth > 0)
        state = drafter->extend(state, at::arange(valid, at::kLong),
                                ids.slice(0, 1 + depth, 1 + depth + valid), &kv);
      const at::Tensor theirs = logits[depth].slice(0, 0, valid);
      if (frozen) {
        const model::Guesses guesses = model::guesses_of(*drafter, state, 10);
        EXPECT_TRUE(at::equal(guesses.ids, std::get<1>(theirs.topk(10)))) << depth;
        EXPECT_LT((guesses.logits - std::get<0>(theirs.topk(10))).abs().max().item<double>(), 1e-4) << depth;
      } else {
        const model::OutputHead& head = drafter->head(depth);
        const at::Tensor own = drafter->head_input(state).mm(head.dense.t()) + head.dense_bias;
        EXPECT_LT((own - theirs).abs().max().item<double>(), 1e-4) << depth;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Published, HydraOfItsAuthors,
                         testing::Values(HydraCase{"hydra", "hydra", {{"heads", 4}, {"own_heads", true}}},
                                         HydraCase{"hydra_prefix",
                                                   "hydra-prefix",
                                                   {{"heads", 4},
                                                    {"layers", 4},
                                                    {"own_heads", true},
                                                    {"prefix", true},
                                                    {"rope_theta", 10000.0}}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace clover
