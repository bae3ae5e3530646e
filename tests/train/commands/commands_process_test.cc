// prepare, init, fit and eval as a user runs them one after the other, on a tiny target with a tokenizer.
#include <ATen/ATen.h>

#include <map>

#include "data/files/safetensors.h"
#include "data/training/token_store.h"
#include "tests/train/commands/commands_process.h"

namespace clover::train {
namespace {

using testing::Not;

TEST_F(CommandsProcessTest, PrepareWritesAStoreShowsItAndSkipsWhatIsBad) {
  auto words = prepare(folder_ / "store");
  for (const char* word : {"--preview", "1", "--threads", "1", "--device", "cpu", "--dtype", "float32"})
    words.push_back(word);
  const test::Ran ran = run("prepare", words);
  EXPECT_EQ(ran.code, 3) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("«it is 0<|im_end|>"));
  EXPECT_THAT(ran.err, HasSubstr("records.jsonl:13: the record: expected messages"));
  EXPECT_THAT(ran.err, HasSubstr("found \"\\xc2\\x9b\""));
  const auto store = data::TokenStore::open(folder_ / "store");
  EXPECT_EQ(store.size(data::Split::train) + store.size(data::Split::held_out), 12);
  EXPECT_GE(store.size(data::Split::held_out), 1);
}

TEST_F(CommandsProcessTest, PrepareRefusesAnOutputItWouldSpoilBeforeItReads) {
  folder_.write("file", "");
  fs::create_directories(folder_ / "home");
  folder_.write("home/letter", "dear");
  expect_refusal("prepare", prepare(folder_ / "file" / "store"), "cannot be written");
  expect_refusal("prepare", prepare(folder_ / "home"), "found letter in it");
  EXPECT_TRUE(fs::exists(folder_ / "home/letter"));
  auto words = prepare(folder_ / "store");
  words.insert(words.end(), {"--device", "cuda"});
  expect_refusal("prepare", words, "--device cuda");
  EXPECT_FALSE(fs::exists(folder_ / "store"));
}

TEST_F(CommandsProcessTest, PrepareSaysThatThereAreNoRecords) {
  std::vector<std::string> words = prepare(folder_ / "store");
  *(std::find(words.begin(), words.end(), "--input") + 1) = folder_.write("empty.jsonl", "\n\n");
  expect_refusal("prepare", words, "holds no records");
  EXPECT_FALSE(fs::exists(folder_ / "store"));
}

TEST_F(CommandsProcessTest, InitTakesATargetOfFewerTokensThanItsTokenizer) {
  test::write_tiny_tokenizer(target_);
  json tokenizer = data::read_json(target_ / "tokenizer.json");
  json& vocab = tokenizer["model"]["vocab"];
  for (auto& [token, id] : vocab.items())
    if (id == 200) std::swap(id, vocab["T"]);
  target_.write("tokenizer.json", tokenizer.dump());
  const test::Ran ran = run("init", {"--kind", "clover", "--output", folder_ / "heads"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const json golden = data::read_json(folder_ / "heads" / "config.json").at("golden");
  EXPECT_EQ(golden.at("ids").size(), 16u);
}

TEST_F(CommandsProcessTest, NumbersThatMeanNothingAreRefused) {
  for (const auto& [name, value] : {std::pair{"--preview", "-3"}, {"--max-bad-records", "-2"}}) {
    std::vector<std::string> words = prepare(folder_ / "store");
    words.insert(words.end(), {name, value});
    expect_refusal("prepare", words, std::string(name) + " is " + value);
  }
  EXPECT_FALSE(fs::exists(folder_ / "store"));
  expect_refusal("export", {"--run", folder_ / "run", "--step", "-5", "--output", folder_ / "heads"},
                 "--step is -5");
  for (const auto& [command, option] :
       {std::pair{"fit", "--steps"}, {"fit", "--seed"}, {"prepare", "--max-length"}, {"init", "--seed"}})
    expect_refusal(command, {option, "99999999999999999999"}, "expected a whole number up to");
  expect_refusal("init", {"--kind", "clover", "--output", folder_ / "none", "--draft-vocab", "-1"},
                 "--draft-vocab");
  for (const char* option : {"--gate-groups", "--tap-layers"})
    expect_refusal("init", {"--kind", "medusa", "--output", folder_ / "none", option, "2"},
                   std::string("Setting ") + option + ": heads of kind medusa have none");
  EXPECT_FALSE(fs::exists(folder_ / "none"));
}

TEST_F(CommandsProcessTest, EvalMeasuresHeadsOnAStoreAndOnLines) {
  const std::string store = prepared(), untrained = heads();
  test::Ran ran = run("eval", eval(untrained, store));
  ASSERT_EQ(ran.code, 0) << ran.err;
  json report = data::read_json(folder_ / "eval.json");
  EXPECT_EQ(report["heads"].size(), 3u);
  EXPECT_GE(report["tokens_per_step"].get<double>(), 1.0);
  EXPECT_EQ(report["decoder"]["differs_from_plain"], 0);
  EXPECT_GT(report["heads"][0]["labels"].get<int64_t>(), 0);
  EXPECT_FALSE(report["by_category"].empty());

  // A prompt without an answer, a text and a prompt that are longer than the context, and an invalid line.
  const std::string endless(1000, 'x');
  const std::string lines =
      folder_.write("lines.jsonl", "{\"prompt\": \"say\"}\n{\"text\": \"" + endless + "\"}\n{\"prompt\": \"" +
                                       endless + "\"}\n{\"a\": 1}\n");
  ran = run("eval", eval(untrained, lines));
  ASSERT_EQ(ran.code, 3) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("1 of 3 samples are not decoded"));
  report = data::read_json(folder_ / "eval.json");
  EXPECT_EQ(report["samples"], 3);
  EXPECT_EQ(report["bad_records"], 1);
}

// A line with an answer is not measured as a request without one, and the other way round.
TEST_F(CommandsProcessTest, EvalCountsAsBadWhatPrepareWould) {
  const std::string untrained = heads();
  std::vector<std::string> words = eval(untrained, records());
  words.insert(words.end(), {"--max-length", "20"});
  const test::Ran ran = run("eval", words);
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("records.jsonl:12: the record has"));
  EXPECT_THAT(ran.err, HasSubstr("holds nothing to measure on"));
  words = eval(untrained, prepared());
  words.insert(words.end(), {"--max-length", "20"});
  const test::Ran of_store = run("eval", words);
  EXPECT_EQ(of_store.code, 2);
  EXPECT_THAT(of_store.err, HasSubstr("are left out: none of their answer is within 20 tokens"));

  const std::string others = folder_.write(
      "others.jsonl", R"({"prompt": "a", "token_ids": [9999], "text": "b", "finish_reason": "stop"})"
                      "\n"
                      R"({"line": 1, "prompt": "a", "error": {"message": "too long"}})"
                      "\n"
                      R"({"prompt": "a", "conversations": [{"from": "tool", "value": "b"}]})"
                      "\n"
                      R"({"prompt": "a"})"
                      "\n");
  ASSERT_EQ(run("eval", eval(untrained, others)).code, 3);
  EXPECT_EQ(data::read_json(folder_ / "eval.json")["bad_records"], 3);
  EXPECT_EQ(data::read_json(folder_ / "eval.json")["samples"], 1);
}

TEST_F(CommandsProcessTest, EvalAndInitRefuseWhatDoesNotBelongTogether) {
  const std::string untrained = heads(), foreign = folder_ / "foreign";
  data::TokenStoreWriter writer(foreign, 0.0, 1000);
  writer.add({{999, 1, 2, 3, 4}, {1, 1, 1, 1, 1}, ""});
  writer.finish({});
  expect_refusal("eval", eval(untrained, foreign), "vocabulary of 1000");
  expect_refusal("init",
                 {"--kind", "medusa", "--draft-vocab", "50", "--data", foreign, "--output", folder_ / "no"},
                 "vocabulary of 1000");
  expect_refusal("eval", eval(folder_ / "absent", records()), "does not exist");
  json config = data::read_json(folder_ / "heads/config.json");
  config["tokenizer"]["hash"] = "0123456789abcdef";
  folder_.write("heads/config.json", config.dump());
  expect_refusal("eval", eval(untrained, records()), "0123456789abcdef");
  EXPECT_FALSE(fs::exists(folder_ / "eval.json"));
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

TEST_F(CommandsProcessTest, PublishedClover2HeadsAreTakenOver) {
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
  expect_refusal("init", {"--published", target_.path(), "--output", folder_ / "own"}, "found neither");
  EXPECT_FALSE(fs::exists(folder_ / "own"));

  const test::Ran ran = run("init", init);
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(data::read_json(folder_ / "own/config.json")["drafter"],
            (json{{"heads", 5}, {"augmenting_layers", 2}, {"rope_theta", 0}}));
  const auto own = data::SafetensorsReader::open(folder_ / "own/model.safetensors");
  EXPECT_EQ(own.names().size(), names.size());
  const std::map<std::string, at::Tensor> written(tensors.begin(), tensors.end());
  for (const auto& [name, theirs] : names)
    EXPECT_TRUE(at::equal(own.read(name), written.at(theirs).to(at::kBFloat16))) << name;
}

// The published code rotates positions by a base of 10000, whatever the target does.
TEST_F(CommandsProcessTest, PublishedClover2HeadsKeepTheirRotation) {
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
  EXPECT_EQ(own["drafter"], (json{{"heads", 2}, {"augmenting_layers", 2}, {"rope_theta", 10000}}));
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

TEST_F(CommandsProcessTest, EvalFindsAnUnwritableReportBeforeItMeasures) {
  expect_refusal(
      "eval", {"--heads", folder_ / "none", "--input", records(), "--json", folder_ / "absent" / "eval.json"},
      "absent");
}

TEST_F(CommandsProcessTest, TheBestHeadsComeBackWhenARunIsContinuedWithoutThem) {
  const std::vector<std::string> fit{"--data",         prepared(), "--output",          folder_ / "run",
                                     "--kind",         "medusa",   "--steps",           "4",
                                     "--batch",        "4",        "--threads",         "1",
                                     "--eval-prompts", "2",        "--eval-max-tokens", "8",
                                     "--resume",       "auto"};
  ASSERT_EQ(run("fit", fit).code, 0);
  fs::remove_all(folder_ / "run/best");
  const test::Ran ran = run("fit", fit);
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(fs::exists(folder_ / "run/best/config.json"));
  // The last evaluation is still recorded when no new one is made.
  const json before = data::read_json(folder_ / "run/last/config.json")["training"]["evaluation"];
  EXPECT_TRUE(before.is_object());
  ASSERT_EQ(run("fit", fit).code, 0);
  EXPECT_EQ(data::read_json(folder_ / "run/last/config.json")["training"]["evaluation"], before);
  // A resumed run without evaluation keeps the best heads, too.
  folder_.write("run/best/marker", "");
  std::vector<std::string> without = fit;
  *(std::find(without.begin(), without.end(), "--eval-prompts") + 1) = "0";
  ASSERT_EQ(run("fit", without).code, 0);
  EXPECT_TRUE(fs::exists(folder_ / "run/best/marker"));
}

TEST_F(CommandsProcessTest, BestHeadsAreComparedOnThePromptsOfNow) {
  std::vector<std::string> fit{"--data",         prepared(), "--output",          folder_ / "run",
                               "--kind",         "medusa",   "--steps",           "4",
                               "--batch",        "4",        "--threads",         "1",
                               "--eval-prompts", "2",        "--eval-max-tokens", "8",
                               "--resume",       "auto"};
  ASSERT_EQ(run("fit", fit).code, 0);
  EXPECT_THAT(run("fit", fit).err, Not(HasSubstr("anew")));
  *(std::find(fit.begin(), fit.end(), "--eval-prompts") + 1) = "1";
  for (const bool changed : {true, false}) {
    const test::Ran ran = run("fit", fit);
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(ran.err.find("measuring best/, of step 4, anew") != std::string::npos, changed) << ran.err;
    const json state = data::read_json(folder_ / "run/checkpoints/step-000004/state.json");
    EXPECT_EQ(state["best_on"]["prompts"], 1);
    EXPECT_EQ(state["evaluation"]["prompts"], 2) << "of the last evaluation";
  }
}

TEST_F(CommandsProcessTest, FitSaysWhyItDoesNotEvaluate) {
  const test::Ran ran = run("fit", {"--data", prepared(), "--output", folder_ / "run", "--kind", "medusa",
                                    "--steps", "1", "--batch", "4", "--eval-max-tokens", "100000"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("no held-out prompt that leaves room for --eval-max-tokens 100000"));
}

}  // namespace
}  // namespace clover::train
