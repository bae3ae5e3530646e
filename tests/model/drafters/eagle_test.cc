// EAGLE and EAGLE-3 against SafeAILab's code (tests/golden/drafters/eagle1/README.md, eagle3/README.md).
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>

#include "data/files/safetensors.h"
#include "model/drafters/drafter.h"
#include "tests/model/drafters/own_layers.h"
#include "tests/support/goldens.h"
#include "tests/support/published_names.h"
#include "tests/support/reading.h"

namespace clover {
namespace {

using data::SafetensorsReader;
using model::DraftState;
using nlohmann::json;

struct EagleCase {
  const char* name;
  const char* folder;
  const char* target;
  const char* kind;
  json settings;
  const char* prefix = "";  // of the golden tensors
};

class EagleOfSafeAILab : public testing::TestWithParam<EagleCase> {
 protected:
  void SetUp() override {
    const auto folder = test::goldens() / "drafters" / GetParam().folder;
    target_ = model::Target::load(test::goldens() / "drafters" / GetParam().target, at::kFloat);
    golden_.emplace(SafetensorsReader::open(folder / "golden.safetensors"));
    const bool third = std::string(GetParam().kind) == "eagle3";
    const at::Tensor map = third ? golden_->read("target_ids_of_draft").clone() : at::Tensor();
    drafter_ = model::make_drafter(GetParam().kind, GetParam().settings, target_->view(), map, true, 1);
    const auto weights = SafetensorsReader::open(folder / "published" / "model.safetensors");
    test::take_weights(*drafter_, weights, [](const std::string& name) {
      return test::name_of_safe_ai_lab(name, GetParam().kind);
    });
    features_.post_norm = third ? at::Tensor() : golden_->read("features").clone();
    if (third) features_.layers = golden_->read("taps").clone();
    ids_ = golden_->read("ids").clone();
  }

  at::Tensor read(const std::string& name) const { return golden_->read(GetParam().prefix + name).clone(); }

  /// Their states at every row of the text; our `output` is what their LM head reads.
  void expect_rows(const DraftState& state, const std::string& name) const {
    EXPECT_LT((state.hidden - read(name + ".hidden")).abs().max().item<double>(), tolerance) << name;
    const at::Tensor weight = drafter_->head(0).dense.to(at::kFloat);
    const at::Tensor logits = drafter_->head_input(state).to(at::kFloat).mm(weight.t());
    EXPECT_LT((logits - read(name + ".logits")).abs().max().item<double>(), 4 * tolerance) << name;
  }

  /// The text's rows, a chain of four steps, and a tree of two levels; `kv` as Drafter::prime takes it.
  void expect_golden(const std::function<DraftState(const at::Tensor& frontier)>& prime, model::DraftKv* kv) {
    const at::NoGradGuard no_grad;
    expect_rows(prime(at::arange(text_rows, at::kLong)), "sequence");
    const at::Tensor last = at::tensor({text_rows - 1}, at::kLong), only = at::zeros({1}, at::kLong);
    DraftState state = prime(last);
    const at::Tensor tokens = read("chain.tokens");
    for (int64_t step = 0; step < tokens.size(0); ++step) {
      state = drafter_->extend(state, only, tokens.slice(0, step, step + 1), kv);
      EXPECT_LT((state.hidden[0] - read("chain.hidden")[step]).abs().max().item<double>(), tolerance) << step;
    }
    state = drafter_->extend(prime(last), at::zeros({3}, at::kLong), read("tree.level_1.tokens"), kv);
    expect_rows(state, "tree.level_1");
    state = drafter_->extend(state, read("tree.level_2.parents"), read("tree.level_2.tokens"), kv);
    expect_rows(state, "tree.level_2");
  }

  static constexpr int64_t text_rows = 12;
  static constexpr double tolerance = 2e-5;
  std::unique_ptr<model::Target> target_;
  std::shared_ptr<model::Drafter> drafter_;
  std::optional<SafetensorsReader> golden_;
  model::Features features_;
  at::Tensor ids_;
};

TEST_P(EagleOfSafeAILab, TrainingComputesTheirStates) {
  const model::Segment segment{0, 0, text_rows};
  expect_golden(
      [&](const at::Tensor& frontier) {
        return drafter_->prime(features_.slice(0, text_rows), ids_.slice(0, 1, text_rows + 1), {&segment, 1},
                               frontier, nullptr);
      },
      nullptr);
}

TEST_P(EagleOfSafeAILab, DecodingComputesTheirStates) {
  drafter_->freeze(at::kFloat);
  model::KvCache cache(target_->kv_shape(drafter_->kv_layers()), 16, 4);
  const int32_t sequence = cache.open();
  test::read_text(*target_, test::to_ids(ids_.slice(0, 0, text_rows)), text_rows, cache, sequence);
  model::DraftKv kv{};
  expect_golden(
      [&](const at::Tensor& frontier) {
        const model::Segment segment{sequence, 0, text_rows};
        kv = test::own_layers(*drafter_, cache, target_->config().layers, segment);
        return drafter_->prime(features_.slice(0, text_rows), ids_.slice(0, 1, text_rows + 1), {}, frontier,
                               &kv);
      },
      &kv);
}

INSTANTIATE_TEST_SUITE_P(
    Published, EagleOfSafeAILab,
    testing::Values(
        EagleCase{"eagle1", "eagle1", "target", "eagle", {{"mlp_width", 48}, {"norm_eps", 1e-6}}},
        EagleCase{"eagle1_gqa",
                  "eagle1-gqa",
                  "target-gqa",
                  "eagle",
                  {{"fc_bias", false}, {"mlp_width", 48}, {"norm_eps", 1e-6}}},
        EagleCase{"eagle3", "eagle3", "target-gqa", "eagle3", {{"rope_theta", 10000.0}, {"mlp_width", 48}}},
        EagleCase{"eagle3_as_target", "eagle3", "target-gqa", "eagle3", {{"mlp_width", 48}}, "rope500000."},
        EagleCase{"eagle3_full",
                  "eagle3-full",
                  "target-gqa",
                  "eagle3",
                  {{"rope_theta", 10000.0}, {"mlp_width", 48}}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace clover
