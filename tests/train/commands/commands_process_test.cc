// prepare, init, fit and eval as a user runs them one after the other, on a tiny target with a tokenizer.
#include <cmath>

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
  EXPECT_GT(report["heads"][0]["labels"].get<int64_t>(), 0);
  EXPECT_FALSE(report["by_category"].empty());
  EXPECT_FALSE(report["heads"][0].contains("loss"));

  std::vector<std::string> words = eval(untrained, store);
  words.insert(words.end(), {"--loss", "total-variation + lk"});
  ran = run("eval", words);
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("total-variation 0."));
  const json terms = data::read_json(folder_ / "eval.json")["heads"][0]["loss"];
  EXPECT_EQ(terms.size(), 2u);
  // By Jensen's inequality the mean of -log(1 - TV) is at least -log(1 - mean TV).
  EXPECT_GE(terms["lk"].get<double>(), -std::log(1 - terms["total-variation"].get<double>()) - 1e-5);
  words.back() = "kl";
  expect_refusal("eval", words, "\"kl\" is no term");

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
  EXPECT_EQ(report["decoder"]["answers"], 2);
  EXPECT_EQ(report["decoder"]["answers_of_target"], 0);
}

TEST_F(CommandsProcessTest, EvalKeepsWhatTheTargetComputedInAFile) {
  const std::string untrained = heads(), file = folder_ / "features.safetensors";
  const std::string requests =
      folder_.write("requests.jsonl", "{\"prompt\": \"say\"}\n{\"prompt\": \"go\"}\n");
  for (const std::string& input : {prepared(), requests}) {
    SCOPED_TRACE(input);
    std::vector<std::string> words = eval(untrained, input);
    ASSERT_EQ(run("eval", words).code, 0);
    const json expected = data::read_json(folder_ / "eval.json");
    words.insert(words.end(), {"--feature-file", file});
    for (const std::string time : {"writes", "reads"}) {
      SCOPED_TRACE(time);
      const test::Ran ran = run("eval", words);
      ASSERT_EQ(ran.code, 0) << ran.err;
      EXPECT_EQ(ran.err.find("plain decoding") == std::string::npos, time == "reads") << ran.err;
      EXPECT_EQ(data::read_json(folder_ / "eval.json"), expected);
    }
    expect_refusal(
        "eval",
        [&] {
          std::vector<std::string> same = eval(untrained, input);
          same.insert(same.end(), {"--feature-file", folder_ / "eval.json"});
          return same;
        }(),
        "expected another file than");
    EXPECT_TRUE(fs::remove(file));
  }
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

TEST_F(CommandsProcessTest, EvalFindsAnUnwritableReportBeforeItMeasures) {
  expect_refusal(
      "eval", {"--heads", folder_ / "none", "--input", records(), "--json", folder_ / "absent" / "eval.json"},
      "absent");
}

TEST_F(CommandsProcessTest, InspectMeasuresHeadsOnPromptsOfOnesOwn) {
  const std::string untrained = heads();
  std::string lines;
  for (int i = 0; i < 12; ++i) lines += json{{"prompt", "say " + std::to_string(i)}}.dump() + "\n";
  const auto inspect = [&](std::vector<std::string> more) {
    std::vector<std::string> words{CLOVER_BINARY_DIR "/bin/clover-infer",
                                   "inspect",
                                   untrained,
                                   "--target",
                                   target_.path(),
                                   "--template",
                                   "chatml"};
    words.insert(words.end(), more.begin(), more.end());
    return test::run_program(folder_, words);
  };
  const std::string prompts = folder_.write("prompts.jsonl", lines), report = folder_ / "inspect.json";
  const test::Ran ran = inspect({"--verify", "--prompts", prompts, "--json", report});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("tokens a step, 0 answers differ from plain decoding (0 wanted)"));
  const json own = data::read_json(report)["own_prompts"];
  EXPECT_EQ(own["requests"], 10);  // the first ten
  EXPECT_EQ(own["differs_from_plain"], 0);
  EXPECT_GE(own["tokens_per_step"].get<double>(), 1.0);
  const test::Ran alone = inspect({"--prompts", prompts});
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--prompts: expected --verify"));
  EXPECT_EQ(inspect({"--verify", "--prompts", folder_ / "absent"}).code, 2);
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
