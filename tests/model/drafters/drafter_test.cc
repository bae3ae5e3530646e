// What holds for drafters of every kind.  Against published code: eagle_test.cc, hydra_test.cc,
// redrafter_test.cc and, for Medusa and files of others, tests/train/heads/published_heads_test.cc.
#include "model/drafters/drafter.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "data/files/safetensors.h"
#include "tests/model/drafters/own_layers.h"
#include "tests/support/input_error.h"
#include "tests/support/reading.h"

namespace clover {
namespace {

using model::Drafter;
using model::DraftState;
using model::Segment;
using nlohmann::json;

struct DrafterCase {
  const char* name;
  const char* kind;
  json settings;
  const char* target = "tied-bf16";
};

class EveryDrafter : public testing::TestWithParam<DrafterCase> {
 protected:
  void SetUp() override {
    const auto folder = test::golden_target(GetParam().target);
    target_ = model::Target::load(folder, at::kFloat);
    const auto golden = data::SafetensorsReader::open(folder / "golden.safetensors");
    ids_ = test::to_ids(golden.read("ids"));
    drafter_ =
        model::make_drafter(GetParam().kind, GetParam().settings, target_->view(), {}, /*trainable=*/true, 3);
    at::NoGradGuard no_grad;
    // Away from the zero start, so that every weight matters.
    auto generator = at::globalContext().defaultGenerator(at::kCPU);
    generator.set_current_seed(11);
    for (auto& parameter : drafter_->parameters()) parameter.add_(at::randn(parameter.sizes()) * 0.05);
  }

  /// Outputs [T - 1, H] at each depth of teacher-forced training calls over the whole text.
  std::vector<at::Tensor> teacher_forced() {
    const int64_t rows = static_cast<int64_t>(ids_.size()) - 1;
    const auto read = read_text();
    const at::Tensor all = at::tensor(ids_, at::kLong);
    const Segment segment{0, 0, static_cast<int32_t>(rows)};
    DraftState state = drafter_->prime(read.features.rows(at::arange(rows, at::kLong)), all.slice(0, 1),
                                       {&segment, 1}, at::arange(rows, at::kLong), nullptr);
    std::vector<at::Tensor> outputs{drafter_->head_input(state)};
    for (int64_t depth = 1; depth < drafter_->trained_depth(); ++depth) {
      const int64_t left = rows - depth;
      state = drafter_->extend(state, at::arange(left, at::kLong), all.slice(0, 1 + depth, 1 + depth + left),
                               nullptr);
      outputs.push_back(drafter_->head_input(state));
    }
    return outputs;
  }

  model::TargetOutput read_text() const {
    return test::read_text(*target_, ids_, 1 << 20, drafter_->taps().layers);
  }

  std::unique_ptr<model::Target> target_;
  std::shared_ptr<Drafter> drafter_;
  std::vector<int64_t> ids_;
};

/// The recurrence of training is the one of decoding: primed in uneven pieces over a paged cache, guess by
/// guess.
TEST_P(EveryDrafter, StepwiseDecodingEqualsTeacherForcing) {
  const auto expected = teacher_forced();
  drafter_->freeze(at::kFloat);
  model::KvCache cache(target_->kv_shape(drafter_->kv_layers()), 32, 4);
  const int32_t sequence = cache.open();
  const int64_t rows = static_cast<int64_t>(ids_.size()) - 1;
  at::NoGradGuard no_grad;
  int64_t primed = 0;
  for (int64_t t = 0; t < rows; t += 1 + t % 3) {
    const std::vector<int64_t> piece(ids_.begin() + primed, ids_.begin() + t + 1);
    const auto read = test::read_text(*target_, piece, 2, cache, sequence, drafter_->taps().layers);
    const std::vector<int64_t> next(ids_.begin() + primed + 1, ids_.begin() + t + 2);
    const Segment segment{sequence, static_cast<int32_t>(primed), static_cast<int32_t>(piece.size())};
    model::DraftKv kv = test::own_layers(*drafter_, cache, target_->config().layers, segment);
    DraftState state = drafter_->prime(read.features, at::tensor(next, at::kLong), {},
                                       at::tensor({t - primed}, at::kLong), &kv);
    for (int64_t depth = 0; depth < drafter_->trained_depth() && t + 1 + depth < rows + 1; ++depth) {
      if (depth > 0)
        state = drafter_->extend(state, at::tensor({0}, at::kLong),
                                 at::tensor({ids_[t + 1 + depth]}, at::kLong), &kv);
      if (t >= expected[depth].size(0)) break;
      const at::Tensor difference = (drafter_->head_input(state)[0] - expected[depth][t]).abs().max();
      EXPECT_LT(difference.item<float>(), 2e-4) << "position " << t << ", depth " << depth;
    }
    primed = t + 1;
  }
}

/// Training computes only the frontier; what it leaves out must not change what it keeps.
TEST_P(EveryDrafter, AFrontierIsARowSelection) {
  const int64_t rows = static_cast<int64_t>(ids_.size()) - 1;
  const auto features = read_text().features.rows(at::arange(rows, at::kLong));
  const at::Tensor next = at::tensor(ids_, at::kLong).slice(0, 1);
  const std::vector<Segment> segments{{0, 0, 10}, {0, 0, static_cast<int32_t>(rows) - 10}};
  const at::Tensor all = at::arange(rows, at::kLong), some = at::tensor({3, 9, 10, 17, 38}, at::kLong);
  const at::Tensor whole = drafter_->head_input(drafter_->prime(features, next, segments, all, nullptr));
  const at::Tensor part = drafter_->head_input(drafter_->prime(features, next, segments, some, nullptr));
  EXPECT_LT((whole.index_select(0, some) - part).abs().max().item<float>(), 1e-5);
}

/// Gradients against central differences in a few random directions of all parameters at once.
TEST_P(EveryDrafter, GradientsAgreeWithFiniteDifferences) {
  const auto loss = [&] {
    at::Tensor sum = at::zeros({}, at::kDouble);
    const std::vector<at::Tensor> outputs = teacher_forced();
    for (size_t depth = 0; depth < outputs.size(); ++depth) {
      const model::OutputHead& head = drafter_->head(static_cast<int64_t>(depth));
      at::Tensor output = outputs[depth];
      if (head.trainable()) output = output.mm(head.dense.t());
      if (head.dense_bias.defined()) output = output + head.dense_bias;
      sum = sum + (0.1 * output.to(at::kDouble)).sin().mean();
    }
    return sum;
  };
  loss().backward();
  auto parameters = drafter_->parameters();
  for (uint64_t direction = 0; direction < 3; ++direction) {
    auto generator = at::globalContext().defaultGenerator(at::kCPU);
    generator.set_current_seed(100 + direction);
    double predicted = 0;
    std::vector<at::Tensor> steps;
    for (const at::Tensor& parameter : parameters) {
      steps.push_back(at::randn(parameter.sizes()));
      ASSERT_TRUE(parameter.grad().defined());
      predicted += (parameter.grad() * steps.back()).sum().item<double>();
    }
    const double size = 2e-4;
    const auto moved = [&](double by) {
      at::NoGradGuard no_grad;
      for (size_t i = 0; i < parameters.size(); ++i) parameters[i].add_(steps[i], by);
    };
    moved(size);
    const double above = loss().item<double>();
    moved(-2 * size);
    const double below = loss().item<double>();
    moved(size);
    EXPECT_NEAR((above - below) / (2 * size), predicted, 0.02 * std::abs(predicted) + 2e-3);
  }
}

// An optimiser takes steps in proportion to them, whatever weights the drafter has now.
TEST_P(EveryDrafter, MatricesThatBeginAsTheTargetsKnowItsSize) {
  const auto fresh = model::make_drafter(GetParam().kind, GetParam().settings, target_->view(), {},
                                         /*trainable=*/true, 3);
  const auto parameters = fresh->named_parameters();
  const std::vector<double> sizes = fresh->target_rms();
  ASSERT_EQ(sizes.size(), parameters.size());
  EXPECT_EQ(sizes, drafter_->target_rms());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    const bool copied = parameter.dim() == 2 && name.find("_proj.") != std::string::npos;
    if (copied) {
      EXPECT_GT(sizes[i], 0) << name;
    } else if (parameter.dim() == 1) {
      EXPECT_EQ(sizes[i], 0) << name;
    }
    // Zeros may stand in the place of the target's matrix, or beside it.
    if (sizes[i] > 0 && at::all(parameter != 0).item<bool>()) {
      const double size = parameter.detach().square().mean().sqrt().item<double>();
      EXPECT_NEAR(sizes[i], size, 1e-4 * size) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, EveryDrafter,
    testing::Values(
        DrafterCase{"clover", "clover", json::object()},
        DrafterCase{"clover_gate_groups", "clover", {{"gate_groups", 4}}},
        DrafterCase{"clover_concat", "clover", {{"regression", "concat"}}},
        DrafterCase{"clover_no_regression", "clover", {{"regression", "none"}}},
        DrafterCase{"clover_attention_block", "clover", {{"block", "attention"}}},
        DrafterCase{"clover_no_block", "clover", {{"block", "none"}, {"heads", 4}}},
        DrafterCase{"clover_taps", "clover", {{"tap_layers", {1, 2}}}, "llama3-rope-fp16"},
        DrafterCase{"clover_taps_without_block",
                    "clover",
                    {{"tap_layers", {1}}, {"block", "none"}, {"regression", "concat"}}},
        DrafterCase{"clover_qwen2", "clover", json::object(), "qwen2"},
        DrafterCase{"clover_qwen3", "clover", json::object(), "qwen3"},
        DrafterCase{"clover_plain", "clover", {{"block", "none"}, {"regression", "none"}}},
        DrafterCase{"clover_own_rotation", "clover", {{"rope_theta", 50}}, "yarn-rope"},
        DrafterCase{"clover2", "clover2", json::object()},
        DrafterCase{"clover2_own_rotation", "clover2", {{"rope_theta", 10000}}, "llama3-rope-fp16"},
        DrafterCase{"clover2_one_layer", "clover2", {{"augmenting_layers", 1}, {"heads", 4}}, "qwen2"},
        DrafterCase{"clover2_three_layers", "clover2", {{"augmenting_layers", 3}}, "qwen3"},
        DrafterCase{"medusa", "medusa", json::object()},
        DrafterCase{"medusa_layers", "medusa", {{"layers", 3}, {"heads", 2}}},
        DrafterCase{"medusa_own_heads", "medusa", {{"own_heads", true}}},
        DrafterCase{"redrafter", "redrafter", json::object()}, DrafterCase{"eagle", "eagle", {{"heads", 2}}},
        DrafterCase{"eagle_qwen2", "eagle", {{"fc_bias", false}, {"heads", 3}}, "qwen2"},
        DrafterCase{"eagle3", "eagle3", {{"heads", 3}}},
        DrafterCase{"eagle3_qwen3", "eagle3", {{"norm_before_residual", true}, {"heads", 2}}, "qwen3"},
        DrafterCase{"hydra", "hydra", json::object()},
        DrafterCase{"hydra_prefix",
                    "hydra",
                    {{"prefix", true}, {"layers", 2}, {"own_heads", true}, {"rope_theta", 500.0}},
                    "qwen2"},
        DrafterCase{
            "redrafter_narrow", "redrafter", {{"exit_dim", 48}, {"layers", 1}, {"recurrence", "sum"}}}),
    [](const auto& info) { return info.param.name; });

TEST(Clover, BeginsAsTheTargetsLastLayerWithoutSayingAnythingNew) {
  const auto target = model::Target::load(test::golden_target("tied-bf16"), at::kFloat);
  const auto drafter = model::make_drafter("clover", json::object(), target->view(), {}, true, 1);
  const auto ids = test::to_ids(
      data::SafetensorsReader::open(test::golden_target("tied-bf16") / "golden.safetensors").read("ids"));
  const auto features = test::read_text(*target, ids).features;
  const Segment segment{0, 0, static_cast<int32_t>(ids.size())};
  const at::Tensor rows = at::arange(segment.count, at::kLong);
  const at::Tensor next = at::tensor(ids, at::kLong);
  const DraftState first = drafter->prime(features, next, {&segment, 1}, rows, nullptr);
  // W_V = 0 and zero residual blocks: tokens fed do not matter yet, nor does depth.
  const DraftState second = drafter->extend(first, rows, next.flip(0), nullptr);
  EXPECT_TRUE(at::equal(first.hidden, second.hidden));
  EXPECT_TRUE(at::equal(drafter->head_input(first), drafter->head_input(second)));
}

/// The bottom rung of the ablation is Medusa itself.
TEST(Clover, WithoutBlockAndRegressionIsMedusaBitForBit) {
  const auto target = model::Target::load(test::golden_target("tied-bf16"), at::kBFloat16);
  const auto medusa = model::make_drafter("medusa", json::object(), target->view(), {}, true, 1);
  const auto plain =
      model::make_drafter("clover", {{"block", "none"}, {"regression", "none"}}, target->view(), {}, true, 1);
  at::NoGradGuard no_grad;
  for (auto& [name, value] : medusa->named_parameters()) {
    value.copy_(at::randn(value.sizes()));
    plain->parameter(name).copy_(value);
  }
  const at::Tensor h = at::randn({7, target->config().hidden}).to(at::kBFloat16);
  const Segment segment{0, 0, 7};
  const at::Tensor rows = at::arange(7, at::kLong);
  for (const bool frozen : {false, true}) {
    if (frozen) {
      medusa->freeze(at::kBFloat16);
      plain->freeze(at::kBFloat16);
    }
    const auto one = medusa->prime({at::Tensor(), h}, rows, {&segment, 1}, rows, nullptr);
    const auto other = plain->prime({at::Tensor(), h}, rows, {&segment, 1}, rows, nullptr);
    EXPECT_TRUE(at::equal(medusa->head_input(one), plain->head_input(other)));
  }
}

/// The published equations (docs/drafters/clover2.md) written out, a sequence of seven tokens.
class Clover2Equations : public testing::Test {
 protected:
  void SetUp() override {
    no_grad_.emplace();
    at::manual_seed(5);
    drafter_ = model::make_drafter("clover2", json::object(), target_->view(), {}, true, 3);
    for (auto& parameter : drafter_->parameters()) parameter.add_(at::randn(parameter.sizes()) * 0.05);
  }

  at::Tensor weight(const std::string& name) const { return drafter_->parameter(name); }
  at::Tensor rms(const at::Tensor& x, const std::string& norm) const {
    const double eps = target_->config().norm_eps;
    return x / (x.square().mean(-1, true) + eps).sqrt() * weight(norm + ".weight");
  }
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    return x.matmul(weight(name + ".weight").t()) + weight(name + ".bias");
  }
  at::Tensor embedding(const at::Tensor& ids) const { return target_->view().head->rows(ids).to(at::kFloat); }
  at::Tensor fed(const at::Tensor& s, const at::Tensor& ids, const std::string& decoder) const {
    const at::Tensor q = linear(rms(s, decoder + ".state_norm"), decoder + ".query");
    const at::Tensor k = linear(embedding(ids), decoder + ".key"),
                     v = linear(embedding(ids), decoder + ".value");
    at::Tensor out = s.clone();
    const int64_t heads = target_->config().heads, width = s.size(1) / heads;
    for (int64_t head = 0; head < heads; ++head) {
      const auto slice = [&](const at::Tensor& x) { return x.slice(1, head * width, (head + 1) * width); };
      const at::Tensor gate =
          (slice(q) * slice(k)).sum(1, true) / slice(q).norm(2, 1, true) / slice(k).norm(2, 1, true);
      slice(out).add_(gate * slice(v));
    }
    return out;
  }
  /// Clover's augmenting block, which is the same layer, with the weights of one of these.
  at::Tensor layer(const at::Tensor& x, int64_t number) const {
    const auto clover = model::make_drafter("clover", {{"regression", "none"}}, target_->view(), {}, true, 1);
    const std::string own = "block.", ours = "block" + std::to_string(number) + ".";
    for (auto& [name, value] : clover->named_parameters())
      if (name.starts_with(own)) value.copy_(weight(ours + name.substr(own.size())));
    return clover->prime({x, at::Tensor()}, ids_, {&segment_, 1}, every_, nullptr).hidden;
  }

  const std::unique_ptr<model::Target> target_ =
      model::Target::load(test::golden_target("tied-bf16"), at::kFloat);
  const Segment segment_{0, 0, 7};
  const at::Tensor every_ = at::arange(7, at::kLong);
  const at::Tensor ids_ = at::tensor({3, 1, 4, 1, 5, 9, 2}, at::kLong);
  std::optional<at::NoGradGuard> no_grad_;
  std::shared_ptr<Drafter> drafter_;
};

TEST_F(Clover2Equations, HoldForEveryGuess) {
  const at::Tensor u = at::randn({7, target_->config().hidden});
  const at::Tensor frontier = at::tensor({2, 6}, at::kLong);
  DraftState state = drafter_->prime({u, at::Tensor()}, ids_, {&segment_, 1}, frontier, nullptr);
  at::Tensor s = layer(layer(fed(u, ids_, "first_decoder"), 0), 1).index_select(0, frontier);
  s = rms(s, "state_norm");
  const auto close = [](const at::Tensor& one, const at::Tensor& other) {
    return (one - other).abs().max().item<float>() < 1e-4;
  };
  EXPECT_TRUE(close(drafter_->head_input(state), rms(linear(s, "first_mix"), "norm")));
  const at::Tensor parents = at::tensor({1, 0, 1}, at::kLong), guesses = at::tensor({8, 6, 7}, at::kLong);
  for (int64_t depth = 1; depth < 3; ++depth) {
    state = drafter_->extend(state, parents, guesses + depth, nullptr);
    s = fed(s.index_select(0, parents), guesses + depth, "next_decoder");
    const at::Tensor both = at::cat({s, embedding(guesses + depth)}, 1);
    EXPECT_TRUE(close(drafter_->head_input(state), rms(linear(both, "next_mix"), "norm"))) << depth;
  }
}

TEST(Drafters, UnknownKindsAndSettingsAreNamed) {
  const auto target = model::Target::load(test::golden_target("tied-bf16"), at::kFloat);
  const auto message = [&](const char* kind, const json& settings) {
    return test::input_error([&] { model::make_drafter(kind, settings, target->view(), {}, false, 0); });
  };
  EXPECT_THAT(message("kestrel", json::object()), testing::HasSubstr("expected one of: clover, clover2, "));
  EXPECT_THAT(message("clover", {{"hedas", 3}}), testing::HasSubstr("hedas"));
  EXPECT_THAT(message("clover", {{"heads", 0}}), testing::HasSubstr("from 1 to"));
  EXPECT_THAT(message("clover", {{"block", "half"}}), testing::HasSubstr("full, attention, none"));
  EXPECT_THAT(message("clover", {{"gate_groups", 7}}), testing::HasSubstr("divisor"));
  EXPECT_THAT(message("clover2", {{"rope_theta", 0.5}}),
              testing::HasSubstr("expected 0, or a number from 1"));
  EXPECT_THAT(message("clover", {{"rope_theta", 5}, {"block", "none"}}),
              testing::HasSubstr("expected 0 where block is"));
}

TEST(Clover, TappedLayersAscendWithinTheTarget) {
  const auto target = model::Target::load(test::golden_target("llama3-rope-fp16"), at::kFloat);  // 3 layers
  const auto message = [&](json settings, const json& layers) {
    settings["tap_layers"] = layers;
    return test::input_error([&] { model::make_drafter("clover", settings, target->view(), {}, false, 0); });
  };
  const json usual = json::object();
  for (const json& layers : {json::array(), json{1}, json{2}, json{1, 2}})
    EXPECT_EQ(message(usual, layers), "");
  const std::vector<json> wrong{1,      "1",       true,     nullptr,      {1.0},     {0},
                                {3},    {1, 1},    {2, 1},   {-1},         {1, "2"},  {1, nullptr},
                                {true}, {1, 2, 3}, {{1, 2}}, {1ull << 63}, {{"a", 1}}};
  for (const json& layers : wrong)
    EXPECT_THAT(message(usual, layers), testing::HasSubstr("ascending integers from 1 to 2")) << layers;
  EXPECT_THAT(message({{"block", "none"}, {"regression", "none"}}, {1}),
              testing::HasSubstr("is [1], expected none"));
}

}  // namespace
}  // namespace clover
