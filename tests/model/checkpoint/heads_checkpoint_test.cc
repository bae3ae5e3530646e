#include "model/checkpoint/heads_checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/safetensors.h"
#include "tests/support/input_error.h"
#include "tests/support/reading.h"
#include "tests/support/temporary_folder.h"

namespace clover {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class HeadsCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    target_ = model::Target::load(test::golden_target("tied-bf16"), at::kBFloat16);
    map_ = at::arange(0, 100, 2, at::kLong);
    drafter_ = model::make_drafter("clover", json::object(), target_->view(), map_, true, 5);
    model::save_heads(folder_, *drafter_, *target_, {{"training", {{"tokens", 12}}}}, at::kBFloat16);
  }

  /// The error of loading the heads after `change`; "" when they load.
  std::string error_after(const std::function<void()>& change, const model::Target* target = nullptr) {
    change();
    return test::input_error([&] { model::load_heads(folder_, target ? *target : *target_, false); });
  }
  void edit(const std::function<void(json&)>& change) {
    json config;
    std::ifstream(folder_ / "config.json") >> config;
    change(config);
    std::ofstream(folder_ / "config.json") << config;
  }
  void edit_tensors(const std::function<void(std::map<std::string, at::Tensor>&)>& change) {
    std::map<std::string, at::Tensor> tensors;
    {
      const auto reader = data::SafetensorsReader::open(folder_ / "model.safetensors");
      for (const std::string& name : reader.names()) tensors[name] = reader.read(name).clone();
    }
    change(tensors);
    data::write_safetensors(folder_ / "model.safetensors", {tensors.begin(), tensors.end()});
  }

  std::unique_ptr<model::Target> target_;
  std::shared_ptr<model::Drafter> drafter_;
  at::Tensor map_;
  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_ / "heads";
};

TEST_F(HeadsCheckpoint, ComesBackAsItWas) {
  const auto loaded = model::load_heads(folder_, *target_, true);
  EXPECT_EQ(loaded->settings(), drafter_->settings());
  EXPECT_TRUE(at::equal(loaded->head(0).token_map, map_));
  for (const auto& [name, value] : loaded->named_parameters()) {
    EXPECT_TRUE(at::equal(value, drafter_->parameter(name).to(at::kBFloat16).to(at::kFloat))) << name;
  }
}

TEST_F(HeadsCheckpoint, GoldenPromptRecognisesTheHeadsAndOthers) {
  const auto ids = test::to_ids(
      data::SafetensorsReader::open(test::golden_target("tied-bf16") / "golden.safetensors").read("ids"));
  const auto loaded = model::load_heads(folder_, *target_, false);
  const json golden = model::make_golden(*loaded, *target_, ids);
  EXPECT_EQ(model::golden_agreement(*loaded, *target_, golden), 1.0);
  at::NoGradGuard no_grad;
  for (auto& parameter : drafter_->parameters()) parameter.copy_(at::randn(parameter.sizes()));
  drafter_->freeze(at::kBFloat16);
  EXPECT_LT(model::golden_agreement(*drafter_, *target_, golden), 0.9);
  EXPECT_THROW(model::golden_agreement(*drafter_, *target_, {{"ids", {1, 2}}, {"first_guesses", {1, 2, 3}}}),
               data::InputError);
}

/// The hidden states of frozen heads after a text: of the first head, and of the second after one guess.
at::Tensor frozen_outputs(model::Drafter& drafter, const model::Target& target,
                          const std::vector<int64_t>& ids) {
  const at::NoGradGuard no_grad;
  model::KvCache cache(target.kv_shape(drafter.kv_layers()), 32, 4);
  const int32_t sequence = cache.open();
  const auto features = test::read_text(target, ids, 64, cache, sequence, drafter.taps().layers).features;
  const model::Segment segment{sequence, 0, static_cast<int32_t>(ids.size())};
  model::DraftKv kv{&cache, target.config().layers, cache.place({&segment, 1})};
  const at::Tensor rows = at::arange(segment.count, at::kLong), next = at::tensor(ids, at::kLong);
  const model::DraftState first = drafter.prime(features, next, {}, rows, &kv);
  return at::cat(
      {drafter.head_input(first), drafter.head_input(drafter.extend(first, rows, next.flip(0), &kv))});
}

/// Frozen heads compute with the values that a folder in their dtype stores: norms and biases are rounded to
/// it, too.
TEST_F(HeadsCheckpoint, GuessAlikeBeforeTheyAreSavedAndAfter) {
  for (const char* family : {"tied-bf16", "qwen2", "qwen3"}) {
    const auto target = model::Target::load(test::golden_target(family), at::kBFloat16);
    const auto ids = test::to_ids(
        data::SafetensorsReader::open(test::golden_target(family) / "golden.safetensors").read("ids"));
    for (const auto& [kind, settings] :
         std::vector<std::pair<const char*, json>>{{"clover", json::object()},
                                                   {"clover", {{"block", "none"}, {"regression", "concat"}}},
                                                   {"clover2", json::object()},
                                                   {"medusa", json::object()}}) {
      const auto trained = model::make_drafter(kind, settings, target->view(), {}, true, 5);
      {
        const at::NoGradGuard no_grad;
        for (auto& parameter : trained->parameters()) parameter += 0.1 * at::randn(parameter.sizes());
      }
      trained->freeze(at::kBFloat16);
      model::save_heads(folder_, *trained, *target, json::object(), at::kBFloat16);
      const auto loaded = model::load_heads(folder_, *target, false);
      EXPECT_TRUE(at::equal(frozen_outputs(*trained, *target, ids), frozen_outputs(*loaded, *target, ids)))
          << family << ", " << kind << " " << settings;
    }
  }
}

TEST_F(HeadsCheckpoint, EveryDamageIsOneSentence) {
  EXPECT_THAT(error_after([&] { edit([](json& config) { config["format_version"] = 7; }); }),
              testing::HasSubstr("format_version is 7"));
  edit([](json& config) { config["format_version"] = 1; });
  EXPECT_THAT(error_after([&] { edit([](json& config) { config["extra"] = 1; }); }),
              testing::HasSubstr("\"extra\" is unknown"));
  edit([](json& config) { config.erase("extra"); });
  EXPECT_THAT(error_after([&] { edit([](json& config) { config["drafter"]["wings"] = 2; }); }),
              testing::HasSubstr("wings"));
  edit([](json& config) { config["drafter"].erase("wings"); });
  EXPECT_THAT(error_after([&] { edit([](json& config) { config["draft_vocab"] = 51; }); }),
              testing::HasSubstr("token_map"));
  edit([](json& config) { config["draft_vocab"] = 50; });
  const json settings = drafter_->settings();
  EXPECT_THAT(error_after([&] { edit([](json& config) { config["drafter"] = 3; }); }),
              testing::HasSubstr("\"drafter\" is 3"));
  edit([&](json& config) { config["drafter"] = settings; });
  EXPECT_EQ(error_after([] {}), "");

  using Tensors = std::map<std::string, at::Tensor>;
  const std::string whole = [&] {
    std::ifstream file(folder_ / "model.safetensors", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  const auto restore = [&](size_t size) {
    std::ofstream(folder_ / "model.safetensors", std::ios::binary)
        .write(whole.data(), static_cast<std::streamsize>(size));
  };
  EXPECT_THAT(error_after([&] { edit_tensors([](Tensors& tensors) { tensors.erase("norm.weight"); }); }),
              testing::HasSubstr("norm.weight is missing"));
  restore(whole.size());
  EXPECT_THAT(error_after([&] {
                edit_tensors([](Tensors& tensors) { tensors["head9.weight"] = at::ones({2, 3}); });
              }),
              testing::HasSubstr("head9.weight [2, 3]"));
  restore(whole.size());
  EXPECT_THAT(
      error_after([&] { edit_tensors([](Tensors& tensors) { tensors["norm.weight"] = at::ones({3}); }); }),
      testing::HasSubstr("[3]"));
  restore(whole.size());
  EXPECT_THAT(error_after([&] { edit_tensors([](Tensors& tensors) { tensors["token_map"][1] = 0; }); }),
              testing::HasSubstr("token_map[1]"));
  for (const size_t size : {size_t{0}, size_t{5}, whole.size() / 2, whole.size() - 1}) {
    restore(size);
    EXPECT_NE(error_after([] {}), "") << size << " bytes";
  }
  EXPECT_THAT(error_after([&] { fs::remove(folder_ / "model.safetensors"); }),
              testing::HasSubstr("not whole"));
  EXPECT_THAT(error_after([&] { fs::remove_all(folder_); }), testing::HasSubstr("does not exist"));
}

TEST_F(HeadsCheckpoint, IsReplacedWholeUnderANameThatEndsWithASlash) {
  model::save_heads(folder_.string() + "/", *drafter_, *target_, {{"training", {{"tokens", 13}}}},
                    at::kBFloat16);
  EXPECT_EQ(model::read_heads_info(folder_).config["training"]["tokens"], 13);
  EXPECT_EQ(std::distance(fs::directory_iterator(temporary_.path()), {}), 1);
}

TEST_F(HeadsCheckpoint, RefusesAnotherTarget) {
  const auto other = model::Target::load(test::golden_target("untied-fp32"), at::kBFloat16);
  EXPECT_THAT(error_after([] {}, other.get()), testing::HasSubstr("another target"));
}

/// The heads' target with changes of its config.json.
std::unique_ptr<model::Target> with_config(const json& changes) {
  const test::TemporaryFolder copy;
  json config = data::read_json(test::golden_target("tied-bf16") / "config.json");
  config.update(changes);
  copy.write("config.json", config.dump());
  fs::copy(test::golden_target("tied-bf16") / "model.safetensors", copy / "model.safetensors");
  return model::Target::load(copy, at::kBFloat16);
}

TEST_F(HeadsCheckpoint, RefusesItsTargetsWeightsWithAnotherConfiguration) {
  const auto refusal = [&](const json& changes) {
    const auto target = with_config(changes);
    return error_after([] {}, target.get());
  };
  EXPECT_EQ(refusal(json::object()), "");
  EXPECT_EQ(refusal({{"max_position_embeddings", 512}, {"eos_token_id", 9}}), "");
  using testing::HasSubstr;
  EXPECT_THAT(refusal({{"rope_theta", 777.0}}), HasSubstr("theta is 10000.0, the given target's is 777.0"));
  EXPECT_THAT(refusal({{"rms_norm_eps", 1e-3}}), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(refusal({{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}), HasSubstr("type"));
  EXPECT_THAT(refusal({{"num_attention_heads", 8}, {"num_key_value_heads", 4}, {"head_dim", 8}}),
              HasSubstr("another target"));
}

TEST_F(HeadsCheckpoint, OlderHeadsAreCheckedByWhatTheyRecord) {
  edit([&](json& config) {
    config["target"].erase("config");
    config["target"]["fingerprint"] = target_->sampled_fingerprint();
  });
  EXPECT_EQ(error_after([] {}), "");
  const auto other = with_config({{"rope_theta", 777.0}});
  EXPECT_EQ(error_after([] {}, other.get()), "");
  edit([](json& config) { config["target"]["fingerprint"] = "0123456789abcdef"; });
  EXPECT_THAT(error_after([] {}), testing::HasSubstr("another target, other weights"));
  for (const json& value : {json(), json(3), json::object()}) {
    edit([&](json& config) { config["target"]["fingerprint"] = value; });
    EXPECT_THAT(error_after([] {}), testing::HasSubstr("another target"));
  }
  edit([&](json& config) { config["target"]["config"] = 3; });
  EXPECT_THAT(error_after([] {}), testing::HasSubstr("another target"));
  edit([&](json& config) { config["target"] = 3; });
  EXPECT_THAT(error_after([] {}), testing::HasSubstr("another target"));
}

}  // namespace
}  // namespace clover
