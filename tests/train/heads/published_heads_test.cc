// Published heads that are loaded into our drafters have the same outputs as in the published code
// (tests/golden/drafters/medusa/README.md says how that code was run).
#include "train/heads/published_heads.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/files/safetensors.h"
#include "tests/support/goldens.h"
#include "tests/support/input_error.h"

namespace clover::train {
namespace {

using nlohmann::json;

const std::filesystem::path drafters = test::goldens() / "drafters";

struct Published {
  const char* folder;
  const char* golden;  // of its logits
  json settings;
  bool whole_vocabulary = true;
};

class MedusaOfOthers : public testing::TestWithParam<Published> {
 protected:
  const std::unique_ptr<model::Target> target_ = model::Target::load(drafters / "target-small", at::kFloat);
  const data::SafetensorsReader golden_ =
      data::SafetensorsReader::open(drafters / "medusa" / "golden.safetensors");
};

TEST_P(MedusaOfOthers, GuessAsTheirCodeDoes) {
  const at::NoGradGuard no_grad;
  auto published = PublishedHeads::open(drafters / GetParam().folder, target_->config());
  EXPECT_EQ(published.settings(), GetParam().settings);
  const at::Tensor map = published.token_map(target_->config());
  const auto heads = model::make_drafter(published.kind(), published.settings(), target_->view(), map,
                                         /*trainable=*/true, 1);
  published.read_into(*heads, *target_);
  model::Features features;
  features.post_norm = golden_.read("features");
  const at::Tensor rows = at::arange(features.post_norm.size(0), at::kLong);
  at::Tensor expected = golden_.read(GetParam().golden);
  if (!GetParam().whole_vocabulary)  // theirs are in the order of their token map
    expected = expected.index_select(2, golden_.read("token_map").argsort());
  for (const bool frozen : {false, true}) {
    if (frozen) heads->freeze(at::kFloat);
    model::DraftState state = heads->prime(features, rows, {}, rows, nullptr);
    for (int64_t depth = 0; depth < heads->max_depth(); ++depth) {
      if (depth > 0) state = heads->extend(state, rows, rows, nullptr);
      const model::OutputHead& head = heads->head(depth);
      const at::Tensor weight = frozen ? head.packed.unpack() : head.dense;
      const at::Tensor logits = heads->head_input(state).to(at::kFloat).matmul(weight.t());
      EXPECT_LT((logits - expected[depth]).abs().max().item<double>(), 1e-5) << "depth " << depth;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, MedusaOfOthers,
    testing::Values(
        Published{"medusa/published", "logits", {{"heads", 3}, {"layers", 1}, {"own_heads", true}}},
        Published{"medusa/published-2-layers",
                  "two_layers.logits",
                  {{"heads", 3}, {"layers", 2}, {"own_heads", true}}},
        Published{
            "medusa/published-shared", "shared.logits", {{"heads", 3}, {"layers", 1}, {"own_heads", false}}},
        Published{
            "medusa-vllm/private", "vllm-private.logits", {{"heads", 3}, {"layers", 1}, {"own_heads", true}}},
        Published{"medusa-vllm/private-bias",
                  "vllm-private-bias.logits",
                  {{"heads", 3}, {"layers", 1}, {"own_heads", true}}},
        Published{
            "medusa-vllm/shared", "vllm-shared.logits", {{"heads", 3}, {"layers", 1}, {"own_heads", false}}},
        Published{"medusa-vllm/shared-bias",
                  "vllm-shared-bias.logits",
                  {{"heads", 3}, {"layers", 1}, {"own_heads", false}}},
        Published{"medusa-vllm/token-map",
                  "vllm-token-map.logits",
                  {{"heads", 3}, {"layers", 1}, {"own_heads", true}},
                  false},
        Published{"medusa-vllm/token-map-full-rows",
                  "vllm-token-map-full-rows.logits",
                  {{"heads", 3}, {"layers", 1}, {"own_heads", false}},
                  false}),
    [](const auto& info) {
      std::string name = info.param.folder;
      for (char& letter : name)
        if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
      return name;
    });

struct PublishedHydra {
  const char* folder;
  json settings;
};

class HydraOfOthers : public testing::TestWithParam<PublishedHydra> {};

TEST_P(HydraOfOthers, GuessAsTheirCodeDoes) {
  const at::NoGradGuard no_grad;
  const auto target = model::Target::load(drafters / "target-small", at::kFloat);
  const auto golden = data::SafetensorsReader::open(drafters / GetParam().folder / "golden.safetensors");
  auto published = PublishedHeads::open(drafters / GetParam().folder / "published", target->config());
  EXPECT_EQ(published.settings(), GetParam().settings);
  const auto heads = model::make_drafter(published.kind(), published.settings(), target->view(), {},
                                         /*trainable=*/true, 1);
  published.read_into(*heads, *target);
  const at::Tensor ids = golden.read("ids"), expected = golden.read("path.logits");
  const int64_t count = ids.size(0) - 1;
  model::Features features;
  features.post_norm = golden.read("features").slice(0, 0, count).contiguous();
  const at::Tensor rows = at::arange(count, at::kLong);
  const model::Segment whole{0, 0, static_cast<int32_t>(count)};
  model::DraftState state = heads->prime(features, ids.slice(0, 1).contiguous(), {&whole, 1}, rows, nullptr);
  for (int64_t depth = 0; depth < heads->max_depth(); ++depth) {
    const int64_t valid = count - depth;
    if (depth > 0)
      state = heads->extend(state, at::arange(valid, at::kLong),
                            ids.slice(0, 1 + depth, 1 + depth + valid).contiguous(), nullptr);
    const model::OutputHead& head = heads->head(depth);
    const at::Tensor logits =
        heads->head_input(state).to(at::kFloat).matmul(head.dense.t()) + head.dense_bias;
    EXPECT_LT((logits - expected[depth].slice(0, 0, valid)).abs().max().item<double>(), 2e-5) << depth;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, HydraOfOthers,
    testing::Values(PublishedHydra{"hydra",
                                   {{"heads", 4}, {"layers", 1}, {"prefix", false}, {"own_heads", true}}},
                    PublishedHydra{"hydra-prefix",
                                   {{"heads", 4},
                                    {"layers", 4},
                                    {"prefix", true},
                                    {"own_heads", true},
                                    {"mlp_width", 0},
                                    {"rope_theta", 10000}}}),
    [](const auto& info) { return std::string(info.param.folder) == "hydra" ? "mlp" : "prefix"; });

struct PublishedEagle {
  const char* folder;
  const char* golden;
  const char* target;
  json settings;
  double tolerance = 1e-5;
};

class EagleOfOthers : public testing::TestWithParam<PublishedEagle> {};

TEST_P(EagleOfOthers, GuessAsTheirCodeDoes) {
  const at::NoGradGuard no_grad;
  const auto target = model::Target::load(drafters / GetParam().target, at::kFloat);
  const auto golden = data::SafetensorsReader::open(drafters / GetParam().golden / "golden.safetensors");
  auto published = PublishedHeads::open(drafters / GetParam().folder, target->config());
  EXPECT_EQ(published.settings(), GetParam().settings);
  const auto heads = model::make_drafter(published.kind(), published.settings(), target->view(),
                                         published.token_map(target->config()), /*trainable=*/true, 1);
  published.read_into(*heads, *target);
  constexpr int64_t count = 12;
  const at::Tensor ids = golden.read("ids"), rows = at::arange(count, at::kLong);
  model::Features features;
  if (published.kind() == "eagle")
    features.post_norm = golden.read("features").slice(0, 0, count).contiguous();
  else
    features.layers = golden.read("taps").slice(0, 0, count).contiguous();
  const model::Segment whole{0, 0, count};
  const model::DraftState state =
      heads->prime(features, ids.slice(0, 1, 1 + count).contiguous(), {&whole, 1}, rows, nullptr);
  EXPECT_LT((state.hidden - golden.read("sequence.hidden")).abs().max().item<double>(), GetParam().tolerance);
  const at::Tensor logits = heads->head_input(state).to(at::kFloat).matmul(heads->head(0).dense.t());
  const at::Tensor expected = golden.read("sequence.logits");
  EXPECT_LT((logits - expected).abs().max().item<double>(), 10 * GetParam().tolerance);
  EXPECT_TRUE(at::equal(std::get<1>(logits.topk(10)), std::get<1>(expected.topk(10))));
}

// The settings that every EAGLE-3 of these has: its layer rotates by 10000 and not by the target's 500000.
json eagle3_of(const json& more) {
  json all{{"mlp_width", 0}, {"norm_eps", 0}, {"rope_theta", 10000}};
  all.update(more);
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, EagleOfOthers,
    testing::Values(
        PublishedEagle{"eagle1/published",
                       "eagle1",
                       "target",
                       {{"fc_bias", true}, {"mlp_width", 48}, {"norm_eps", 1e-6}, {"rope_theta", 0}}},
        PublishedEagle{"eagle1-gqa/published",
                       "eagle1-gqa",
                       "target-gqa",
                       {{"fc_bias", false}, {"mlp_width", 0}, {"norm_eps", 1e-6}, {"rope_theta", 0}}},
        PublishedEagle{"eagle3/published", "eagle3", "target-gqa", eagle3_of(json::object())},
        PublishedEagle{"eagle3/published-nvidia", "eagle3", "target-gqa",
                       eagle3_of({{"tap_layers", {2, 3, 4}}})},
        PublishedEagle{"eagle3/published-speculators", "eagle3", "target-gqa",
                       eagle3_of({{"tap_layers", {2, 3, 4}}, {"norm_before_residual", false}})},
        PublishedEagle{"eagle3-full/published", "eagle3-full", "target-gqa", eagle3_of(json::object())},
        PublishedEagle{"eagle3-full/published-nvidia", "eagle3-full", "target-gqa",
                       eagle3_of({{"tap_layers", {2, 3, 4}}})},
        PublishedEagle{"eagle3-full/published-speculators", "eagle3-full", "target-gqa",
                       eagle3_of({{"tap_layers", {2, 3, 4}}, {"norm_before_residual", false}})}),
    [](const auto& info) {
      std::string name = info.param.folder;
      for (char& letter : name)
        if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
      return name;
    });

TEST(PublishedHeads, AnotherTargetIsNoticed) {
  const auto other = model::Target::load(drafters / "target", at::kFloat);  // of 320 tokens
  EXPECT_THAT(
      test::input_error([&] { PublishedHeads::open(drafters / "medusa-vllm/shared", other->config()); }),
      testing::HasSubstr("the target has 320 tokens"));
}

}  // namespace
}  // namespace clover::train
