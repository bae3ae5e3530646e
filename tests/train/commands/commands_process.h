#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/files/files.h"
#include "tests/infer/commands/run_program.h"
#include "tests/infer/requests/tiny_tokenizer.h"
#include "tests/train/run/tiny_run.h"

namespace clover::train {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

/// Runs the commands of clover-train on a tiny target that has a tokenizer.
class CommandsProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"config.json", "generation_config.json", "model.safetensors"})
      fs::copy_file(tiny_target() / name, target_ / name);
    test::write_tiny_tokenizer(target_);
    // The target has 130 tokens: ASCII, then ChatML's two.
    json tokenizer = data::read_json(target_ / "tokenizer.json");
    json vocab = json::object();
    for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) {
      if (id < 128) vocab[token] = id;
    }
    tokenizer["model"]["vocab"] = vocab;
    for (int i = 0; i < 2; ++i) tokenizer["added_tokens"][i]["id"] = 128 + i;
    target_.write("tokenizer.json", tokenizer.dump());
  }

  test::Ran run(const std::string& command, std::vector<std::string> words) const {
    std::vector<std::string> arguments{CLOVER_BINARY_DIR "/bin/clover-train", command, "--target",
                                       target_.path()};
    arguments.insert(arguments.end(), words.begin(), words.end());
    return test::run_program(folder_, arguments);
  }

  /// Expects exit code 2 and one sentence that contains `message`.
  void expect_refusal(const std::string& command, const std::vector<std::string>& words,
                      const std::string& message) const {
    const test::Ran ran = run(command, words);
    EXPECT_EQ(ran.code, 2) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(message));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  }

  /// Twelve conversations, and a line that is no record and contains terminal escapes.
  std::string records() const {
    std::string lines;
    for (int i = 0; i < 12; ++i) {
      const std::string number = std::to_string(i);
      const json part = {{"type", "text"}, {"text", "say " + number}};
      const json question = {{"role", "user"}, {"content", json::array({part})}};
      const json answer = {{"role", "assistant"}, {"content", "it is " + number}};
      lines +=
          json{{"category", i % 2 ? "odd" : "even"}, {"messages", json::array({question, answer})}}.dump() +
          "\n";
    }
    return folder_.write("records.jsonl", lines + "{\"\\u009b\": 1}\n");
  }

  std::vector<std::string> prepare(const std::string& output) const {
    return {"--template", "chatml", "--input", records(), "--output", output, "--holdout", "0.3"};
  }
  std::string prepared() const {
    EXPECT_EQ(run("prepare", prepare(folder_ / "store")).code, 3);
    return folder_ / "store";
  }
  std::string heads() const {
    EXPECT_EQ(run("init", {"--kind", "medusa", "--output", (folder_ / "heads").string() + "/"}).code, 0);
    return folder_ / "heads";
  }
  std::vector<std::string> eval(const std::string& heads, const std::string& input) const {
    return {"--template",          "chatml",       "--heads", heads, "--input", input, "--json",
            folder_ / "eval.json", "--max-tokens", "8"};
  }

  const test::Variable spins_{"GOMP_SPINCOUNT", "10000"};  // see fit_process.h
  const test::TemporaryFolder target_, folder_;
};

}  // namespace clover::train
