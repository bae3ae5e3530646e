// Reading a target's folder, and telling targets apart.  Oracle of precedence: Hugging Face
// transformers 5.24, tried by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/safetensors.h"
#include "model/target/target.h"
#include "tests/support/input_error.h"
#include "tests/support/reading.h"
#include "tests/support/temporary_folder.h"

namespace clover {
namespace {

using model::Target;
using test::golden_target;
using test::read_text;

using Tensors = std::map<std::string, at::Tensor>;

/// A changed copy of a golden folder, and what loading it prints.
struct ChangedFolder {
  ChangedFolder(const char* name, const std::function<void(nlohmann::json&, Tensors&)>& change) {
    nlohmann::json config = data::read_json(golden_target(name) / "config.json");
    const auto reader = data::SafetensorsReader::open(golden_target(name));
    Tensors tensors;
    for (const std::string& tensor : reader.names()) tensors[tensor] = reader.read(tensor).clone();
    change(config, tensors);
    folder.write("config.json", config.dump());
    data::write_safetensors(folder / "model.safetensors", {tensors.begin(), tensors.end()});
    testing::internal::CaptureStderr();
    target = Target::load(folder, at::kFloat);
    said = testing::internal::GetCapturedStderr();
  }
  const test::TemporaryFolder folder;
  std::unique_ptr<Target> target;
  std::string said;
};

/// The fingerprint of a golden folder after `change`.
std::string fingerprint_with(const std::function<void(nlohmann::json&, Tensors&)>& change) {
  return ChangedFolder("untied-fp32", change).target->fingerprint();
}

TEST(TargetFolder, FingerprintSeesEveryRowAndIgnoresHowItIsStored) {
  const std::string as_it_is = fingerprint_with([](auto&, auto&) {});
  EXPECT_EQ(as_it_is, Target::load(golden_target("untied-fp32"), at::kBFloat16)->fingerprint());
  for (const char* name :
       {"model.embed_tokens.weight", "lm_head.weight", "model.layers.1.mlp.down_proj.weight"}) {
    for (const int64_t row : {0, 1, 17, 47}) {
      EXPECT_NE(as_it_is, fingerprint_with([&](auto&, Tensors& tensors) { tensors[name][row][5] += 1; }))
          << name << row;
    }
  }
  const auto stored_as = [](at::ScalarType dtype) {
    return fingerprint_with([dtype](auto&, Tensors& tensors) {
      for (auto& [name, tensor] : tensors) tensor = tensor.to(at::kBFloat16).to(dtype);
    });
  };
  EXPECT_EQ(stored_as(at::kFloat), as_it_is);
  EXPECT_EQ(stored_as(at::kBFloat16), as_it_is);
  EXPECT_EQ(stored_as(at::kDouble), as_it_is);
}

TEST(TargetFolder, FingerprintCoversWhatChangesTheFunction) {
  const auto with = [](const char* key, const nlohmann::json& value) {
    return fingerprint_with([&](nlohmann::json& config, auto&) { config[key] = value; });
  };
  std::set<std::string> seen{fingerprint_with([](auto&, auto&) {})};
  const auto expect_new = [&](const char* key, const nlohmann::json& value) {
    EXPECT_TRUE(seen.insert(with(key, value)).second) << key << " " << value;
  };
  expect_new("rope_theta", 20000.0);
  expect_new("rms_norm_eps", 1e-5);
  expect_new("rope_scaling", {{"type", "linear"}, {"factor", 2.0}});
  expect_new("rope_scaling", {{"type", "linear"}, {"factor", 3.0}});
  expect_new("rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}});
  expect_new("rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}, {"attention_factor", 1.5}});
  expect_new("rope_parameters", {{"rope_type", "default"}, {"rope_theta", 30000.0}});
  expect_new("model_type", "mistral");
  EXPECT_TRUE(seen.contains(with("max_position_embeddings", 512))) << "the same network, longer texts";
  EXPECT_TRUE(seen.contains(with("eos_token_id", 7)));
  EXPECT_TRUE(seen.contains(with("rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000}})));
  const auto split = [](int64_t heads) {  // the same weights
    return fingerprint_with([&](nlohmann::json& config, auto&) {
      config.update(
          {{"num_attention_heads", heads}, {"num_key_value_heads", heads}, {"head_dim", 48 / heads}});
    });
  };
  EXPECT_TRUE(seen.contains(split(3)));
  EXPECT_TRUE(seen.insert(split(6)).second);
}

TEST(TargetFolder, SaysWhatARecordedFingerprintBelongsTo) {
  const auto target = Target::load(golden_target("tied-bf16"), at::kBFloat16);
  EXPECT_EQ(target->difference_from(target->fingerprint()), "");
  EXPECT_EQ(target->difference_from("68d56161707f8661"), "") << "as recorded at first: worked out apart";
  const ChangedFolder rope("tied-bf16", [](nlohmann::json& config, auto&) { config["rope_theta"] = 3; });
  EXPECT_THAT(target->difference_from(rope.target->fingerprint()), testing::HasSubstr("another config.json"));
  EXPECT_EQ(rope.target->difference_from("68d56161707f8661"), "") << "it was of weights alone";
  const ChangedFolder row("tied-bf16",
                          [](auto&, Tensors& tensors) { tensors["model.embed_tokens.weight"][3] *= 2; });
  EXPECT_EQ(target->difference_from(row.target->fingerprint()), "other weights");
  EXPECT_EQ(target->difference_from(""), "other weights");
  EXPECT_EQ(target->difference_from("0123456789abcdef"), "other weights");
}

TEST(TargetFolder, TakesTheHeadThatIsStoredBesideItsEmbedding) {
  const char *head = "lm_head.weight", *embedding = "model.embed_tokens.weight";
  const std::vector<int64_t> ids{5, 9, 33, 70, 12};
  const auto tied = [&](const std::function<void(Tensors&)>& change) {
    return ChangedFolder("untied-fp32", [&](nlohmann::json& config, Tensors& tensors) {
      config["tie_word_embeddings"] = true;
      change(tensors);
    });
  };
  const at::Tensor untied = read_text(*Target::load(golden_target("untied-fp32"), at::kFloat), ids).logits;
  const ChangedFolder other = tied([](Tensors&) {});
  EXPECT_THAT(other.said, testing::AllOf(testing::HasSubstr("lm_head.weight"), testing::EndsWith("true\n")));
  EXPECT_FALSE(other.target->config().tied_head);
  EXPECT_TRUE(at::equal(read_text(*other.target, ids).logits, untied));

  const ChangedFolder alone = tied([&](Tensors& tensors) { tensors.erase(head); });
  const ChangedFolder equal =
      tied([&](Tensors& tensors) { tensors[head] = tensors[embedding].to(at::kDouble); });
  const ChangedFolder swapped = tied([&](Tensors& tensors) {
    tensors[head] = tensors[embedding];
    tensors.erase(embedding);
  });
  for (const ChangedFolder* one : {&alone, &equal, &swapped}) {
    EXPECT_EQ(one->said, "");
    EXPECT_TRUE(one->target->config().tied_head);
    EXPECT_EQ(one->target->fingerprint(), alone.target->fingerprint());
    EXPECT_TRUE(at::equal(read_text(*one->target, ids).logits, read_text(*alone.target, ids).logits));
  }
  EXPECT_FALSE(at::equal(read_text(*alone.target, ids).logits, untied));
}

TEST(TargetFolder, FindsTensorsUnderTheNetworksOwnNames) {
  const auto whole = Target::load(golden_target("untied-fp32"), at::kFloat);
  const ChangedFolder bare("untied-fp32", [](auto&, Tensors& tensors) {
    Tensors renamed;
    for (const auto& [name, tensor] : tensors)
      renamed[name.starts_with("model.") ? name.substr(6) : "model." + name] = tensor;
    tensors = renamed;
  });
  EXPECT_EQ(bare.target->fingerprint(), whole->fingerprint());
}

TEST(TargetFolder, RunsInTheDtypeThatItIsStoredIn) {
  const auto dtype = [](const nlohmann::json& said, const std::map<std::string, at::ScalarType>& stored) {
    const ChangedFolder target("untied-fp32", [&](nlohmann::json& config, Tensors& tensors) {
      config.erase("torch_dtype");
      config.update(said);
      for (auto& [name, tensor] : tensors)
        tensor = tensor.to(stored.contains(name) ? stored.at(name) : stored.at(""));
    });
    return model::TargetConfig::read(target.folder).stored_dtype;
  };
  const nlohmann::json unsaid = nlohmann::json::object();
  for (const at::ScalarType stored : {at::kFloat, at::kHalf, at::kBFloat16}) {
    EXPECT_EQ(dtype(unsaid, {{"", stored}}), stored);
    EXPECT_EQ(dtype({{"dtype", nullptr}, {"torch_dtype", nullptr}}, {{"", stored}}), stored);
    EXPECT_EQ(dtype({{"dtype", "auto"}}, {{"", stored}}), stored);
    EXPECT_EQ(dtype({{"torch_dtype", "float16"}}, {{"", stored}}), at::kHalf);
  }
  EXPECT_EQ(dtype({{"dtype", "float32"}}, {{"", at::kBFloat16}}), at::kFloat);
  EXPECT_EQ(dtype({{"dtype", "half"}}, {{"", at::kBFloat16}}), at::kHalf);
  EXPECT_EQ(dtype({{"dtype", "float16"}, {"torch_dtype", "bfloat16"}}, {{"", at::kFloat}}), at::kHalf);
  EXPECT_EQ(dtype({{"dtype", nullptr}, {"torch_dtype", "bfloat16"}}, {{"", at::kFloat}}), at::kBFloat16);
  EXPECT_EQ(dtype(unsaid, {{"", at::kDouble}}), at::kFloat);
  // transformers takes the first tensor by name.
  EXPECT_EQ(dtype(unsaid, {{"", at::kBFloat16}, {"model.norm.weight", at::kFloat}}), at::kBFloat16);
  EXPECT_EQ(dtype(unsaid, {{"", at::kHalf}, {"lm_head.weight", at::kFloat}}), at::kFloat);
}

TEST(TargetFolder, ContextIsWhatTheUserAsksFor) {
  const auto target = Target::load(golden_target("tied-bf16"), at::kBFloat16);
  const auto said_by = [](Target& of, int64_t tokens) {
    testing::internal::CaptureStderr();
    of.set_context(tokens);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said_by(*target, 100), "");
  EXPECT_EQ(target->config().context, 100);
  EXPECT_THAT(said_by(*target, 400), testing::HasSubstr("--max-context 400"));
  EXPECT_EQ(target->config().context, 400);
  const auto windowed = Target::load(golden_target("mistral"), at::kBFloat16);
  EXPECT_EQ(said_by(*windowed, 40), "");
  EXPECT_THAT(test::input_error([&] { windowed->set_context(41); }), testing::HasSubstr("at most 40"));
}

TEST(TargetFolder, FingerprintIgnoresTheContainer) {
  const std::filesystem::path source = golden_target("sharded-linear-rope");
  const test::TemporaryFolder copy;
  std::filesystem::copy(source / "config.json", copy / "config.json");
  const auto reader = data::SafetensorsReader::open(source);
  data::NamedTensors tensors;
  for (const std::string& name : reader.names()) tensors.emplace_back(name, reader.read(name));
  data::write_safetensors(copy / "model.safetensors", tensors);
  EXPECT_EQ(Target::load(source, at::kFloat)->fingerprint(),
            Target::load(copy, at::kBFloat16)->fingerprint());
  EXPECT_NE(Target::load(source, at::kFloat)->fingerprint(),
            Target::load(golden_target("tied-bf16"), at::kFloat)->fingerprint());
}

/// The InputError of loading a changed copy of a folder; "" when it loads.
std::string load_error(
    const std::function<void(nlohmann::json&, std::map<std::string, at::Tensor>&)>& change) {
  const test::TemporaryFolder copy;
  const auto reader = data::SafetensorsReader::open(golden_target("untied-fp32"));
  std::map<std::string, at::Tensor> tensors;
  for (const std::string& name : reader.names()) tensors[name] = reader.read(name);
  nlohmann::json config;
  std::ifstream(golden_target("untied-fp32") / "config.json") >> config;
  change(config, tensors);
  std::ofstream(copy / "config.json") << config.dump();
  data::write_safetensors(copy / "model.safetensors", {tensors.begin(), tensors.end()});
  return test::input_error([&] { Target::load(copy, at::kFloat); });
}

TEST(TargetFolder, RefusesFoldersThatDoNotFitTogether) {
  EXPECT_EQ(load_error([](nlohmann::json&, Tensors&) {}), "");
  EXPECT_EQ(load_error([](nlohmann::json&, Tensors& tensors) {
              tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = at::ones({8});
            }),
            "")
      << "a buffer that old folders carry along";
  EXPECT_THAT(load_error([](nlohmann::json&, Tensors& tensors) { tensors.erase("model.norm.weight"); }),
              testing::HasSubstr("model.norm.weight"));
  EXPECT_THAT(load_error([](nlohmann::json&, Tensors& tensors) { tensors["model.extra"] = at::ones({2}); }),
              testing::HasSubstr("model.extra"));
  EXPECT_THAT(
      load_error([](nlohmann::json&, Tensors& tensors) { tensors["model.norm.weight"] = at::ones({47}); }),
      testing::HasSubstr("[47]"));
  EXPECT_THAT(load_error([](nlohmann::json& config, Tensors&) { config["model_type"] = "mamba"; }),
              testing::HasSubstr("mamba"));
  EXPECT_THAT(load_error([](nlohmann::json& config, Tensors&) { config["hidden_size"] = -3; }),
              testing::HasSubstr("hidden_size"));
  EXPECT_THAT(load_error([](nlohmann::json& config, Tensors&) {
                config["rope_scaling"] = {{"rope_type", "su"}};
              }),
              testing::HasSubstr("\"su\""));
  EXPECT_THAT(
      load_error([](nlohmann::json&, Tensors& tensors) { tensors.erase("lm_head.weight"); }),
      testing::AllOf(testing::HasSubstr("lm_head.weight"), testing::HasSubstr("tie_word_embeddings")));
  EXPECT_THAT(load_error([](nlohmann::json& config, Tensors&) {
                config["rope_scaling"] = {{"rope_type", "llama3"}};
              }),
              testing::HasSubstr("factor"));
  EXPECT_THAT(load_error([](nlohmann::json& config, Tensors&) {
                config["model_type"] = "qwen3";
                config["head_dim"] = 16;
              }),
              testing::HasSubstr("q_norm"));
  EXPECT_THAT(load_error([](nlohmann::json&, Tensors& tensors) {
                tensors["model.layers.0.self_attn.q_proj.bias"] = at::ones({48});
              }),
              testing::HasSubstr("is not part of a llama model"));
  EXPECT_THAT(load_error([](nlohmann::json& config, Tensors&) { config.erase("num_hidden_layers"); }),
              testing::HasSubstr("num_hidden_layers"));
}

}  // namespace
}  // namespace clover
