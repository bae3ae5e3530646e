// The commands init --published and export, which read and write other projects' heads.
#include <ATen/ATen.h>

#include <map>
#include <numeric>

#include "data/files/safetensors.h"
#include "tests/support/goldens.h"
#include "tests/train/commands/commands_process.h"

namespace clover::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;

using Tensors = std::map<std::string, at::Tensor>;

Tensors all_of(const fs::path& file) {
  const auto reader = data::SafetensorsReader::open(file);
  Tensors all;
  for (const std::string& name : reader.names()) all[name] = reader.read(name);
  return all;
}

class PublishedProcessTest : public CommandsProcessTest {
 protected:
  /// Writes published/ with this config.json and these tensors in `file`; returns its name.
  std::string publish(const json& config, const Tensors& tensors, const std::string& file) const {
    const fs::path published = folder_ / "published";
    fs::remove_all(published);
    fs::create_directories(published);
    folder_.write("published/config.json", config.dump());
    data::write_safetensors(published / file, {tensors.begin(), tensors.end()});
    return published;
  }
  std::vector<std::string> take_over(const std::string& published, const std::string& to) const {
    return {"--published", published, "--output", folder_ / to, "--dtype", "float32"};
  }
  /// `export` of heads that are in `from`.
  test::Ran exported(const std::string& from, const std::string& format, const std::string& to) const {
    return run("export", {"--heads", folder_ / from, "--format", format, "--output", folder_ / to});
  }
  at::Tensor lm_head() const {
    return data::SafetensorsReader::open(tiny_target()).read("model.embed_tokens.weight").clone();
  }
};

constexpr int64_t hidden = 64, vocab = 130;

void expect_equal(const Tensors& found, const Tensors& expected) {
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_TRUE(at::equal(found.at(name).to(tensor.scalar_type()), tensor)) << name;
  }
}

// Medusa's class makes a head's layers by multiplying a list: they are one block, stored as often.
TEST_F(PublishedProcessTest, MedusaHeadsWithVocabulariesOfTheirOwn) {
  Tensors tensors;
  for (const std::string head : {"0", "1", "2"}) {
    const at::Tensor weight = at::randn({hidden, hidden}), bias = at::randn({hidden});
    for (const std::string layer : {"0", "1"}) {
      tensors[head + "." + layer + ".linear.weight"] = weight;
      tensors[head + "." + layer + ".linear.bias"] = bias;
    }
    tensors[head + ".2.weight"] = at::randn({vocab, hidden});
  }
  json config{{"medusa_num_heads", 2},
              {"medusa_num_layers", 2},
              {"base_model_name_or_path", "somewhere"},
              {"model_type", "medusa"},
              {"transformers_version", "4.34.1"}};
  const std::string file = "medusa_lm_head.safetensors";
  const test::Ran ran = run("init", take_over(publish(config, tensors, file), "own"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("published as medusa"), HasSubstr("15 tensors of 15 were taken over"),
                             HasSubstr("make 100.0% of the recorded guesses"),
                             HasSubstr("\"medusa_num_heads\" is 2, but the weights are those of 3 heads")));
  const json own = data::read_json(folder_ / "own/config.json");
  EXPECT_EQ(own["drafter"], (json{{"heads", 3}, {"layers", 2}, {"own_heads", true}}));
  EXPECT_EQ(own["training"]["published"], "published");
  EXPECT_EQ(own["training"]["published_format"], "medusa");
  const Tensors ours = all_of(folder_ / "own/model.safetensors");
  EXPECT_TRUE(at::equal(ours.at("head2.1.linear.weight"), tensors.at("2.1.linear.weight")));
  EXPECT_TRUE(at::equal(ours.at("vocabulary1.weight"), tensors.at("1.2.weight")));
  ASSERT_EQ(exported("own", "medusa", "back").code, 0);
  expect_equal(all_of(folder_ / "back" / file), tensors);
  EXPECT_EQ(data::read_json(folder_ / "back/config.json")["medusa_num_heads"], 3);

  config["medusa_scale"] = 2;
  expect_refusal("init", take_over(publish(config, tensors, file), "no"),
                 "key \"medusa_scale\" is not understood");
  config.erase("medusa_scale");
  tensors["0.2.weight"] = at::randn({vocab + 1, hidden});
  expect_refusal("init", take_over(publish(config, tensors, file), "no"), "'0.2.weight' has shape");
  EXPECT_FALSE(fs::exists(folder_ / "no"));
}

TEST_F(PublishedProcessTest, APickleOfMedusaIsToBeConverted) {
  fs::create_directories(folder_ / "published");
  folder_.write("published/config.json", R"({"medusa_num_heads": 2, "medusa_num_layers": 1})");
  folder_.write("published/medusa_lm_head.pt", "x");
  expect_refusal("init", take_over(folder_ / "published", "own"), "scripts/convert_pt.py");
}

/// vLLM's tensors of two heads with two layers each.
Tensors vllm_blocks(bool biases) {
  Tensors tensors;
  for (const std::string head : {"0", "1"})
    for (const std::string layer : {"0", "1"}) {
      tensors["blocks." + head + ".layers." + layer + ".weight"] = at::randn({hidden, hidden});
      if (biases) tensors["blocks." + head + ".layers." + layer + ".bias"] = at::randn({hidden});
    }
  return tensors;
}

json vllm_config() {
  return {{"model_type", "medusa"}, {"architectures", {"MedusaModel"}},
          {"hidden_size", hidden},  {"vocab_size", vocab},
          {"num_heads", 2},         {"num_hidden_layers", 2}};
}

TEST_F(PublishedProcessTest, MedusaHeadsOfVllmWithADraftVocabulary) {
  Tensors tensors = vllm_blocks(true);
  const at::Tensor map = at::tensor({7, 3, 129, 50}, at::kLong);  // in any order
  for (const std::string head : {"0", "1"}) tensors["lm_heads." + head + ".weight"] = at::randn({4, hidden});
  tensors["token_map"] = map;
  json config = vllm_config();
  config.update({{"truncated_vocab_size", 4}, {"medusa_fc_bias", true}, {"max_paths", 64}, {"topk", 10}});
  const test::Ran ran = run("init", take_over(publish(config, tensors, "model.safetensors"), "own"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Tensors ours = all_of(folder_ / "own/model.safetensors");
  const at::Tensor order = at::tensor({1, 0, 3, 2}, at::kLong);
  EXPECT_TRUE(at::equal(ours.at("token_map"), map.index_select(0, order)));
  EXPECT_TRUE(
      at::equal(ours.at("vocabulary1.weight"), tensors.at("lm_heads.1.weight").index_select(0, order)));
  ASSERT_EQ(exported("own", "medusa-vllm", "back").code, 0);
  Tensors ascending = tensors;
  for (const char* name : {"token_map", "lm_heads.0.weight", "lm_heads.1.weight"})
    ascending[name] = tensors[name].index_select(0, order);
  expect_equal(all_of(folder_ / "back/model.safetensors"), ascending);
  const json back = data::read_json(folder_ / "back/config.json");
  for (const char* key : {"model_type", "hidden_size", "vocab_size", "num_heads", "num_hidden_layers",
                          "truncated_vocab_size", "medusa_fc_bias"})
    EXPECT_EQ(back[key], config[key]) << key;
  // vLLM takes any key with "num" and "heads" in its name for the number of heads.
  for (const auto& [key, value] : back.items())
    EXPECT_EQ(key.find("num") != key.npos && key.find("heads") != key.npos, key == "num_heads") << key;
  const test::Ran other = exported("own", "medusa", "no");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("export them as medusa-vllm"));
}

TEST_F(PublishedProcessTest, MedusaHeadsOfVllmThatShareTheTargetsHead) {
  Tensors tensors = vllm_blocks(false);
  tensors["lm_heads.0.weight"] = lm_head();
  json config = vllm_config();
  config["original_lm_head"] = true;
  test::Ran ran = run("init", take_over(publish(config, tensors, "model.safetensors"), "own"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("lm_heads.0.weight was left out: it is the target's LM head"));
  const Tensors ours = all_of(folder_ / "own/model.safetensors");
  EXPECT_EQ(ours.at("head0.linear.bias").abs().max().item<float>(), 0);
  // The target's head goes with the export, which must be told where the target is.
  ran = test::run_program(folder_, {CLOVER_BINARY_DIR "/bin/clover-train", "export", "--heads",
                                    folder_ / "own", "--format", "medusa-vllm", "--output", folder_ / "no"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("--target"));
  ASSERT_EQ(exported("own", "medusa-vllm", "back").code, 0);  // `run` names the target
  Tensors with_biases = tensors;
  for (const auto& [name, tensor] : vllm_blocks(true))
    if (name.ends_with("bias")) with_biases[name] = at::zeros({hidden});
  expect_equal(all_of(folder_ / "back/model.safetensors"), with_biases);

  const auto refused = [&](const json& changes, const char* message) {
    json changed = config;
    changed.update(changes);
    expect_refusal("init", take_over(publish(changed, tensors, "model.safetensors"), "no"), message);
  };
  refused({{"logit_scale", 0.5}}, "\"logit_scale\" is 0.5");
  refused({{"num_attention_heads", 4}}, "vLLM reads both as the number of heads");
  refused({{"vocab_size", 131}}, "the target has 130 tokens");
  refused({{"truncated_vocab_size", 4}}, "no tensor token_map");
  tensors["lm_heads.0.weight"] = lm_head().flip(0);
  refused(json::object(), "is not the LM head of this target");
  tensors["lm_heads.0.weight"] = lm_head();
  tensors["blocks.0.layers.0.bias"] = at::zeros({hidden});
  refused(json::object(), "\"medusa_fc_bias\"");
}

// tests/golden/drafters: written by the published code itself.
TEST_F(PublishedProcessTest, ReDrafterGoesInAndOutAsApplesCodeWroteIt) {
  for (const auto& [name, target, settings] : std::vector<std::tuple<std::string, std::string, json>>{
           {"redrafter", "target", {{"layers", 2}, {"exit_dim", 0}, {"recurrence", "linear"}}},
           {"redrafter-proj", "target-gqa", {{"layers", 1}, {"exit_dim", 48}, {"recurrence", "linear"}}},
           {"redrafter-sum", "target", {{"layers", 1}, {"exit_dim", 0}, {"recurrence", "sum"}}}}) {
    const fs::path drafters = test::goldens() / "drafters", published = drafters / name / "published";
    const test::Ran ran = test::run_program(
        folder_, {CLOVER_BINARY_DIR "/bin/clover-train", "init", "--target", drafters / target, "--published",
                  published, "--output", folder_ / name, "--dtype", "float32"});
    ASSERT_EQ(ran.code, 0) << ran.err;
    json drafter = data::read_json(folder_ / name / "config.json")["drafter"];
    drafter.erase("heads");  // which Apple's layout does not record
    EXPECT_EQ(drafter, settings);
    ASSERT_EQ(exported(name, "redrafter", name + "-back").code, 0);
    expect_equal(all_of(folder_ / (name + "-back") / "model.safetensors"),
                 all_of(published / "model.safetensors"));
    json back = data::read_json(folder_ / (name + "-back") / "config.json");
    const json theirs = data::read_json(published / "config.json");
    for (const auto& [key, value] : back.items()) EXPECT_EQ(value, theirs.value(key, json())) << key;
    ASSERT_EQ(exported(name, "redrafter-tensorrt-llm", name + "-trt").code, 0);
    const auto trt = data::SafetensorsReader::open(folder_ / (name + "-trt") / "rank0.safetensors");
    for (const std::string& tensor : trt.names()) EXPECT_TRUE(tensor.starts_with("drafter.")) << tensor;
  }
}

TEST_F(PublishedProcessTest, Eagle3OfThreeLayoutsGoesOutAsSpeculators) {
  const fs::path drafters = test::goldens() / "drafters", target = drafters / "target-gqa";
  const Tensors theirs = all_of(drafters / "eagle3/published-speculators/model.safetensors");
  for (const std::string layout : {"published", "published-nvidia", "published-speculators"}) {
    const test::Ran ran = test::run_program(
        folder_, {CLOVER_BINARY_DIR "/bin/clover-train", "init", "--target", target, "--published",
                  drafters / "eagle3" / layout, "--output", folder_ / layout, "--dtype", "float32"});
    ASSERT_EQ(ran.code, 0) << ran.err;
    ASSERT_EQ(exported(layout, "eagle3-speculators", layout + "-back").code, 0);
    Tensors without_embedding = theirs;
    without_embedding.erase("embed_tokens.weight");
    expect_equal(all_of(folder_ / (layout + "-back") / "model.safetensors"), without_embedding);
    const json config = data::read_json(folder_ / (layout + "-back") / "config.json");
    EXPECT_EQ(config["eagle_aux_hidden_state_layer_ids"], (json{2, 3, 4}));
    EXPECT_EQ(config["norm_before_residual"], false);
    EXPECT_EQ(config["transformer_layer_config"]["rope_parameters"]["rope_theta"], 10000);
  }
  json config = data::read_json(drafters / "eagle3/published-speculators/config.json");
  for (const auto& [key, value] :
       {std::pair<std::string, json>{"norm_output", true}, {"fc_norm", true}, {"norm_before_fc", true}}) {
    json changed = config;
    changed[key] = value;
    Tensors tensors = theirs;
    const std::string published = publish(changed, tensors, "model.safetensors");
    const test::Ran ran =
        test::run_program(folder_, {CLOVER_BINARY_DIR "/bin/clover-train", "init", "--target", target,
                                    "--published", published, "--output", folder_ / "no"});
    EXPECT_EQ(ran.code, 2);
    EXPECT_THAT(ran.err, HasSubstr('"' + key + "\" is true"));
  }
  // Norms with an epsilon of their own keep it.
  config["transformer_layer_config"]["rms_norm_eps"] = 3e-6;
  Tensors tensors = theirs;
  const std::string other = publish(config, tensors, "model.safetensors");
  const test::Ran ran =
      test::run_program(folder_, {CLOVER_BINARY_DIR "/bin/clover-train", "init", "--target", target,
                                  "--published", other, "--output", folder_ / "other"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(data::read_json(folder_ / "other/config.json")["drafter"]["norm_eps"], 3e-6);
  ASSERT_EQ(exported("other", "eagle3-speculators", "other-back").code, 0);
  const json back = data::read_json(folder_ / "other-back/config.json");
  EXPECT_EQ(back["transformer_layer_config"]["rms_norm_eps"], 3e-6);
}

TEST_F(PublishedProcessTest, AFolderOfNoKnownLayoutIsToldWhatWasLookedFor) {
  fs::create_directories(folder_ / "other");
  folder_.write("other/config.json", R"({"model_type": "other"})");
  for (const char* looked_for : {"config.json with \"clover\"", "medusa_lm_head.safetensors",
                                 "\"model_type\": \"medusa\"", "recurrent_drafting_drafter"})
    expect_refusal("init", take_over(folder_ / "other", "own"), looked_for);
  const test::Ran help = run("init", {"--help"});
  for (const char* format : {"clover2 (", "medusa (", "medusa-vllm (", "redrafter ("})
    EXPECT_THAT(help.out, HasSubstr(format));
}

/// The tensors of heads as in XiaoBin1992/clover; fills `names` with our name of each.
data::NamedTensors clover2_tensors(std::map<std::string, std::string>& names) {
  constexpr int64_t hidden = 64, inner = 96, keys = 32;
  data::NamedTensors tensors;
  const auto add = [&](const std::string& theirs, const std::string& own, at::IntArrayRef shape) {
    tensors.emplace_back(theirs, at::randn(shape).to(at::kHalf));
    names[own] = theirs;
  };
  const auto linear = [&](const std::string& theirs, const std::string& own, int64_t inputs) {
    add(theirs + ".weight", own + ".weight", {hidden, inputs});
    add(theirs + ".bias", own + ".bias", {hidden});
  };
  for (const std::string i : {"0", "1"}) {
    const std::string layer = "layers." + i + ".", block = "block" + i + ".";
    for (const char* name : {"q_proj", "o_proj"})
      add(layer + "self_attn." + name + ".weight", block + name + ".weight", {hidden, hidden});
    for (const char* name : {"k_proj", "v_proj"})
      add(layer + "self_attn." + name + ".weight", block + name + ".weight", {keys, hidden});
    for (const char* name : {"gate_proj", "up_proj"})
      add(layer + "mlp." + name + ".weight", block + name + ".weight", {inner, hidden});
    add(layer + "mlp.down_proj.weight", block + "down_proj.weight", {hidden, inner});
    for (const char* name : {"input_layernorm.weight", "post_attention_layernorm.weight"})
      add(layer + name, block + name, {hidden});
  }
  for (const auto& [theirs, own] :
       {std::pair<std::string, std::string>{"clover_head_mlp_rnn", "first_decoder"},
        {"clover_head_mlp_rnn2", "next_decoder"}}) {
    add(theirs + ".input_layernorm.weight", own + ".state_norm.weight", {hidden});
    linear(theirs + ".q", own + ".query", hidden);
    linear(theirs + ".k", own + ".key", hidden);
    linear(theirs + ".v", own + ".value", hidden);
  }
  add("clover_norm.weight", "state_norm.weight", {hidden});
  add("clover_head_norm.weight", "norm.weight", {hidden});
  linear("clover_head_mlp", "first_mix", hidden);
  linear("clover_head_mlp2", "next_mix", 2 * hidden);
  return tensors;
}

TEST_F(PublishedProcessTest, PublishedClover2HeadsAreTakenOver) {
  std::map<std::string, std::string> names;
  data::NamedTensors tensors = clover2_tensors(names);
  const at::Tensor embedding =
      data::SafetensorsReader::open(tiny_target()).read("model.embed_tokens.weight").clone();
  const fs::path published = folder_ / "published";
  json config = data::read_json(tiny_target() / "config.json");
  config["num_hidden_layers"] = 1;
  config["clover"] = {{"num_heads", 5}, {"num_layers", 2}, {"heads_coefficient", 1.0}};
  const auto write = [&](const json& settings, const data::NamedTensors& of) {
    fs::create_directories(published);
    folder_.write("published/config.json", settings.dump());
    data::write_safetensors(published / "model.safetensors", of);
  };
  const std::vector<std::string> init{"--published", published, "--output", folder_ / "own"};

  data::NamedTensors foreign = tensors, short_of_one = tensors;
  foreign.emplace_back("lm_head.weight", embedding.flip(0));
  write(config, foreign);
  expect_refusal("init", init, "lm_head.weight is not the LM head of this target");
  short_of_one.pop_back();
  write(config, short_of_one);
  expect_refusal("init", init, "clover_head_mlp2.bias");
  json scaled = config;
  scaled["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  write(scaled, tensors);
  expect_refusal("init", init, "scale positions");
  json no_number = config;
  no_number["clover"]["num_heads"] = 18446744073709551615ull;
  write(no_number, tensors);
  expect_refusal("init", init, "\"num_heads\" is 18446744073709551615");
  no_number["clover"] = "x";
  write(no_number, tensors);
  expect_refusal("init", init, "\"clover\" is \"x\"");
  data::NamedTensors infinite = tensors;
  infinite.back().second = at::full({64}, INFINITY);
  write(config, infinite);
  expect_refusal("init", init, "no finite number");
  infinite.back().second = at::full({64}, 1e6);  // which this target's float16 cannot hold
  write(config, infinite);
  auto in_half = init;
  in_half.insert(in_half.end(), {"--dtype", "float16"});
  expect_refusal("init", in_half, "next_mix.bias holds values as large as 1e+06");
  config["rms_norm_eps"] = 1e-6;  // as the published ones for Vicuna
  tensors.emplace_back("clover_embed_tokens.weight", embedding);
  write(config, tensors);
  expect_refusal("init", {"--published", published, "--kind", "medusa", "--output", folder_ / "own"},
                 "--kind");
  expect_refusal("init", {"--published", published, "--heads", "4", "--output", folder_ / "own"}, "--kind");
  expect_refusal("init", {"--published", target_.path(), "--output", folder_ / "own"}, "found none of them");
  EXPECT_FALSE(fs::exists(folder_ / "own"));

  const test::Ran ran = run("init", init);
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(data::read_json(folder_ / "own/config.json")["drafter"],
            (json{{"heads", 5}, {"augmenting_layers", 2}, {"norm_eps", 1e-6}, {"rope_theta", 0}}));
  const auto own = data::SafetensorsReader::open(folder_ / "own/model.safetensors");
  EXPECT_EQ(own.names().size(), names.size());
  const std::map<std::string, at::Tensor> written(tensors.begin(), tensors.end());
  for (const auto& [name, theirs] : names)
    EXPECT_TRUE(at::equal(own.read(name), written.at(theirs).to(at::kBFloat16))) << name;
}

// The published code rotates positions by a base of 10000, whatever the target does.
TEST_F(PublishedProcessTest, PublishedClover2HeadsKeepTheirRotation) {
  std::map<std::string, std::string> names;
  json config = data::read_json(tiny_target() / "config.json");
  config["rope_theta"] = 500000.0;
  target_.write("config.json", config.dump());
  config["clover"] = {{"num_heads", 2}, {"num_layers", 2}};
  fs::create_directories(folder_ / "published");
  folder_.write("published/config.json", config.dump());
  data::write_safetensors(folder_ / "published/model.safetensors", clover2_tensors(names));
  const test::Ran ran =
      run("init", {"--published", folder_ / "published", "--output", folder_ / "own", "--dtype", "float32"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const json own = data::read_json(folder_ / "own/config.json");
  EXPECT_EQ(own["drafter"],
            (json{{"heads", 2}, {"augmenting_layers", 2}, {"norm_eps", 0}, {"rope_theta", 10000}}));
  // Training goes on with it, and refuses another.
  std::vector<std::string> fit{"--data",         prepared(),
                               "--init-heads",   folder_ / "own",
                               "--kind",         "clover2",
                               "--heads",        "2",
                               "--steps",        "1",
                               "--batch",        "4",
                               "--eval-prompts", "2",
                               "--dtype",        "float32",
                               "--output",       folder_ / "run",
                               "--draft-vocab",  "0",
                               "--rope-theta",   "10000"};
  ASSERT_EQ(run("fit", fit).code, 0);
  EXPECT_EQ(data::read_json(folder_ / "run/last/config.json")["drafter"], own["drafter"]);
  fit.pop_back(), fit.pop_back();
  *(std::find(fit.begin(), fit.end(), "--output") + 1) = folder_ / "other";
  expect_refusal("fit", fit, "\"rope_theta\":10000.0");
}

}  // namespace
}  // namespace clover::train
