#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "infer/batch/batch_output.h"
#include "model/checkpoint/heads_checkpoint.h"
#include "tests/infer/commands/run_program.h"
#include "tests/support/temporary_folder.h"

namespace clover {

using nlohmann::json;
using test::Process;
using test::Ran;
using testing::HasSubstr;

/// The commands of clover-infer as a user meets them: the real program, the real SmolLM2, real signals.
class Commands : public testing::Test {
 protected:
  const std::string program = CLOVER_BINARY_DIR "/bin/clover-infer";
  const std::string target = CLOVER_SOURCE_DIR "/models/SmolLM2-135M-Instruct";

  void SetUp() override {
    ASSERT_TRUE(std::filesystem::exists(target + "/model.safetensors"))
        << target << " is missing: run scripts/setup, which puts the example model there.";
  }

  Ran run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program);
    return test::run_program(folder, arguments);
  }

  // Exit code 2, one sentence that holds `message`, and nothing written.
  void expect_refusal(const std::string& command, const std::string& message) {
    std::istringstream words(command);
    std::vector<std::string> arguments;
    for (std::string word; words >> word;) arguments.push_back(word);
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.code, 2) << command;
    EXPECT_THAT(ran.err, HasSubstr(message)) << command;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_FALSE(std::filesystem::exists(out)) << command;
    EXPECT_FALSE(std::filesystem::exists(out + ".run.json")) << command;
  }

  std::vector<std::string> batch(const std::string& input, const std::string& output,
                                 const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"batch", "--target", target, "--input", input, "--output", output};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  // Answers by line number; every line once.
  static std::map<int64_t, json> by_line(const std::string& file) {
    std::map<int64_t, json> records;
    for (const json& record : test::records_of(file)) {
      EXPECT_TRUE(records.emplace(infer::line_of_record(record), record).second) << record;
    }
    return records;
  }

  std::string questions(int count) {
    std::string lines;
    for (int i = 0; i < count; ++i) {
      lines += json{{"id", "q" + std::to_string(i)},
                    {"category", i % 2 ? "odd" : "even"},
                    {"prompt", "Question " + std::to_string(i) + ": what is " + std::to_string(i * 7) +
                                   " plus " + std::to_string(i + 5) + "? Answer:"}}
                   .dump() +
               "\n";
    }
    return folder.write("questions.jsonl", lines);
  }

  // Untrained heads: their poor guesses suffice to test that drafting changes no token.
  std::string heads() {
    const auto model = model::Target::load(target, at::kBFloat16);
    const auto drafter = model::make_drafter("clover", json::object(), model->view(), {}, true, 1);
    const std::string path = (folder / "heads").string();
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 24; ++i) ids.push_back(1000 + 37 * i);
    drafter->freeze(at::kBFloat16);
    const json golden = model::make_golden(*drafter, *model, ids);
    drafter->thaw();
    model::save_heads(path, *drafter, *model,
                      {{"tokenizer", json::object()},
                       {"chat_template", json::object()},
                       {"training", json::object()},
                       {"golden", golden}},
                      at::kBFloat16);
    return path;
  }

  test::TemporaryFolder folder, own_cache;
  // A cache folder for this test, so that costs measured here do not get into the user's cache or the next
  // test.
  const test::Variable cache_folder{"XDG_CACHE_HOME", own_cache.path()};
  std::string out = (folder / "out.jsonl").string();
};

}  // namespace clover
