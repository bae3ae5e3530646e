// Held-out samples have prompts that are not trained on, and reports state which split was measured.
#include <array>
#include <iterator>
#include <set>
#include <sstream>

#include "data/files/safetensors.h"
#include "data/training/token_store.h"
#include "tests/train/commands/commands_process.h"

namespace clover::train {
namespace {

using testing::AllOf, testing::Not;

class HoldoutProcessTest : public CommandsProcessTest {
 protected:
  test::Ran prepare_lines(const std::vector<json>& lines, const std::string& store,
                          const std::string& share = "0.2") const {
    std::string text;
    for (const json& line : lines) text += line.dump() + "\n";
    return run("prepare", {"--template", "chatml", "--input", folder_.write("lines.jsonl", text), "--output",
                           store, "--holdout", share});
  }
  static std::string text_of(const data::TokenStore::Sample& sample) {
    return {sample.ids.begin(), sample.ids.end()};  // a token is a byte or a ChatML tag
  }
  /// By split, the numbers that follow `mark` in the samples.
  static std::array<std::set<int>, 2> numbers_after(const std::string& mark, const data::TokenStore& store) {
    std::array<std::set<int>, 2> numbers;
    for (const auto split : {data::Split::train, data::Split::held_out}) {
      for (int64_t i = 0; i < store.size(split); ++i) {
        const std::string text = text_of(store.sample(split, i));
        numbers[static_cast<int>(split)].insert(std::stoi(text.substr(text.find(mark) + mark.size())));
      }
    }
    return numbers;
  }
  static std::vector<int> shared(const std::array<std::set<int>, 2>& numbers) {
    std::vector<int> both;
    std::ranges::set_intersection(numbers[0], numbers[1], std::back_inserter(both));
    return both;
  }
  static json chat(const std::vector<std::string>& said) {
    json messages = json::array({{{"role", "system"}, {"content", "Be brief."}}});
    for (size_t i = 0; i < said.size(); ++i)
      messages.push_back({{"role", i % 2 ? "assistant" : "user"}, {"content", said[i]}});
    return {{"messages", messages}};
  }
};

TEST_F(HoldoutProcessTest, APromptIsOnOneSideWithAllItsAnswers) {
  std::vector<json> lines;
  for (int i = 0; i < 160; ++i)
    lines.push_back(chat({"q" + std::to_string(i / 4) + "?", "take " + std::to_string(i)}));
  const test::Ran ran = prepare_lines(lines, folder_ / "store");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("32 samples of 8 prompts are held out, 128 of 32 are trained on"));
  const auto store = data::TokenStore::open(folder_ / "store");
  const auto numbers = numbers_after("user\nq", store);
  EXPECT_EQ(numbers[0].size(), 32u);
  EXPECT_EQ(numbers[1].size(), 8u);
  EXPECT_THAT(shared(numbers), testing::IsEmpty());
  std::ranges::reverse(lines);
  ASSERT_EQ(prepare_lines(lines, folder_ / "reversed").code, 0);
  EXPECT_EQ(numbers_after("user\nq", data::TokenStore::open(folder_ / "reversed")), numbers);
}

TEST_F(HoldoutProcessTest, AConversationIsOnOneSideWithAllItsLines) {
  std::vector<json> chats, texts, answered;
  for (int i = 0; i < 30; ++i) {
    std::vector<std::string> said;
    std::string text = "Q: number " + std::to_string(i) + ". It is asked.\nA:";
    for (int turn = 0; turn < 3; ++turn) {
      said.push_back("number " + std::to_string(i) + ". turn " + std::to_string(turn));
      answered.push_back(chat(said));
      answered.back().update({{"token_ids", {97, 98, 129}}, {"text", "ab"}, {"finish_reason", "stop"}});
      said.push_back("an answer");
      chats.push_back(chat(said));
      texts.push_back({{"prompt", text}, {"completion", " it is so"}});
      text += " it is so\nQ: and?\nA:";
    }
  }
  for (const auto* lines : {&chats, &texts, &answered}) {
    ASSERT_EQ(prepare_lines(*lines, folder_ / "store").code, 0);
    const auto store = data::TokenStore::open(folder_ / "store");
    const auto numbers = numbers_after("number ", store);
    EXPECT_THAT(shared(numbers), testing::IsEmpty());
    EXPECT_EQ(numbers[1].size(), 6u);
    EXPECT_EQ(store.size(data::Split::held_out), 18);
  }
}

TEST_F(HoldoutProcessTest, OnePromptAloneIsNotParted) {
  const test::Ran ran =
      prepare_lines({chat({"q", "a"}), chat({"q", "b"}), chat({"q", "c"})}, folder_ / "store");
  ASSERT_EQ(ran.code, 0);
  EXPECT_THAT(ran.err, HasSubstr("nothing is held out: all samples are of one prompt"));
  EXPECT_EQ(data::TokenStore::open(folder_ / "store").size(data::Split::train), 3);
}

TEST_F(HoldoutProcessTest, EvalSaysWhatItMeasuredOn) {
  const std::string untrained = heads();
  test::Ran ran = run("eval", eval(untrained, prepared()));
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(data::read_json(folder_ / "eval.json")["split"], "held_out");
  EXPECT_THAT(ran.err, AllOf(HasSubstr("samples of the held-out split"), Not(HasSubstr("TRAINING"))));

  auto words = prepare(folder_ / "all");
  *(std::ranges::find(words, "--holdout") + 1) = "0";
  ASSERT_EQ(run("prepare", words).code, 3);
  ran = run("eval", eval(untrained, folder_ / "all"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(data::read_json(folder_ / "eval.json")["split"], "train");
  EXPECT_THAT(ran.err,
              AllOf(HasSubstr("12 samples of the TRAINING split"), HasSubstr("holds no held-out samples")));

  ran = run("eval", eval(untrained, records()));
  ASSERT_EQ(ran.code, 3) << ran.err;
  EXPECT_TRUE(data::read_json(folder_ / "eval.json")["split"].is_null());
  EXPECT_THAT(ran.err, HasSubstr("12 samples of the input"));
}

TEST_F(HoldoutProcessTest, ADryRunCountsTheFeaturesOfTheEvaluation) {
  const std::string path = prepared();
  const auto store = data::TokenStore::open(path);
  int64_t rows = 0;  // a prompt is followed by the sample's answer, or by the target's
  for (int64_t i = 0; i < store.size(data::Split::held_out); ++i) {
    const auto sample = store.sample(data::Split::held_out, i);
    const auto answer = std::ranges::find(sample.supervised, uint8_t{1});
    rows += 2 * (answer - sample.supervised.begin() + 8);
  }
  const json config = data::read_json(target_ / "config.json");
  const auto bytes_kept = [&](const std::string& prompts, const std::string& cache) -> int64_t {
    const test::Ran ran = run("fit", {"--kind", "medusa", "--data", path, "--output", folder_ / "run",
                                      "--dry-run", "--steps", "2", "--threads", "1", "--eval-max-tokens", "8",
                                      "--eval-prompts", prompts, "--feature-cache", cache});
    EXPECT_EQ(ran.code, 0) << ran.err;
    std::istringstream lines(ran.out);
    std::string estimate;
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("# ") && line != "# estimate") estimate += line.substr(2);
    return json::parse(estimate)["memory_bytes"]["evaluation_features_kept"];
  };
  EXPECT_EQ(bytes_kept("32", "100000000"), rows * config["hidden_size"].get<int64_t>() * 2);  // bf16
  EXPECT_EQ(bytes_kept("32", "8000"), 1000);
  EXPECT_EQ(bytes_kept("0", "100000000"), 0);
}

// Older stores may have a prompt in both splits.
TEST_F(HoldoutProcessTest, PromptsOnBothSidesOfAnOlderStoreAreSaid) {
  const fs::path store = folder_ / "store";
  std::vector<json> lines;
  for (int i = 0; i < 40; ++i) lines.push_back(chat({"q" + std::to_string(i), "a"}));
  ASSERT_EQ(prepare_lines(lines, store).code, 0);
  json about = data::read_json(store / "store.json");
  about.erase("split_by");
  data::write_file_atomically(store / "store.json", about.dump());
  const std::string untrained = heads();
  EXPECT_THAT(run("eval", eval(untrained, store)).err, Not(HasSubstr("trained on, too")));
  const auto reader = data::SafetensorsReader::open(store / "tokens.safetensors");
  data::NamedTensors tensors;
  for (const std::string& name : reader.names()) {
    const std::string other = name.starts_with("held_out.") ? "train." + name.substr(9) : name;
    tensors.emplace_back(name,
                         reader.read(other).clone());  // puts the training samples into the held-out split
  }
  const auto metadata = reader.metadata();
  data::write_safetensors(store / "tokens.safetensors", tensors, metadata);
  about["held_out"] = about["train"];
  data::write_file_atomically(store / "store.json", about.dump());
  EXPECT_THAT(
      run("eval", eval(untrained, store)).err,
      HasSubstr("32 of the 32 held-out samples of " + store.string() + " have prompts that are trained on"));
  EXPECT_THAT(run("fit", {"--data", store, "--output", folder_ / "run", "--kind", "medusa", "--steps", "1",
                          "--batch", "4", "--eval-prompts", "1", "--eval-max-tokens", "4"})
                  .err,
              HasSubstr("32 of the 32 held-out samples"));
}

}  // namespace
}  // namespace clover::train
