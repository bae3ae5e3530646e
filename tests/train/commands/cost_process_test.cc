// What making heads takes, recorded from the first answer to the last step, as the programs tell it.
#include "tests/infer/commands/output_records.h"
#include "tests/train/commands/commands_process.h"

namespace clover::train {
namespace {

class CostProcessTest : public CommandsProcessTest {
 protected:
  test::Ran infer(const std::string& command, std::vector<std::string> words) const {
    words.insert(words.begin(), {CLOVER_BINARY_DIR "/bin/clover-infer", command});
    return test::run_program(folder_, words);
  }

  std::string prompts() const {
    std::string lines;
    for (int i = 0; i < 12; ++i) lines += json{{"prompt", "say " + std::to_string(i)}}.dump() + "\n";
    return folder_.write("prompts.jsonl", lines);
  }

  /// Answers by `clover-infer batch`.
  std::string answers() const {
    const std::string file = folder_ / "answers.jsonl";
    const test::Ran ran =
        infer("batch", {"--target", target_.path(), "--template", "chatml", "--input", prompts(), "--output",
                        file, "--max-tokens", "40", "--draft", "off"});
    EXPECT_EQ(ran.code, 0) << ran.err;
    return file;
  }

  json config_of(const fs::path& heads) const { return data::read_json(heads / "config.json"); }
};

TEST_F(CostProcessTest, IsRecordedFromTheFirstAnswerToTheLastStepAndPaidBackByWhatABenchSaves) {
  const std::string file = answers(), run_folder = folder_ / "run";
  ASSERT_EQ(run("prepare",
                {"--template", "chatml", "--input", file, "--output", folder_ / "store", "--holdout", "0.3"})
                .code,
            0);
  const test::Ran fit = run("fit", {"--data",
                                    folder_ / "store",
                                    "--output",
                                    run_folder,
                                    "--kind",
                                    "medusa",
                                    "--steps",
                                    "12",
                                    "--batch",
                                    "2",
                                    "--draft-vocab",
                                    "0",
                                    "--eval-every",
                                    "1",
                                    "--eval-prompts",
                                    "2",
                                    "--eval-max-tokens",
                                    "8",
                                    "--checkpoint-every",
                                    "5",
                                    "--threads",
                                    "1"});
  ASSERT_EQ(fit.code, 0) << fit.err;

  const json last = config_of(fs::path(run_folder) / "last")["training"];
  const json best = config_of(fs::path(run_folder) / "best")["training"];
  EXPECT_EQ(last["data"]["sources"][0]["took"]["seconds"],
            data::read_json(file + ".run.json")["took"]["seconds"]);
  EXPECT_LE(best["steps"].get<int>(), 12);
  for (const char* part : {"seconds", "device_seconds", "evaluation_seconds", "operations"}) {
    EXPECT_GT(last[part].get<double>(), 0) << part;
    EXPECT_EQ(best["run"][part], last[part]) << part;  // the steps behind the best one are paid, too
  }

  const std::string heads = fs::path(run_folder) / "best", report = folder_ / "bench.json";
  const test::Ran bench = infer("bench", {"--target", target_.path(), "--template", "chatml", "--heads",
                                          heads, "--input", prompts(), "--batch-sizes", "1", "--max-tokens",
                                          "16", "--draft", "off,chain", "--rounds", "1", "--json", report});
  ASSERT_EQ(bench.code, 0) << bench.err;
  const json entries = data::read_json(report)["configurations"];
  ASSERT_EQ(entries.size(), 2u);
  const double cost = last["data"]["sources"][0]["took"]["seconds"].get<double>() +
                      last["data"]["took"]["seconds"].get<double>() + last["seconds"].get<double>() +
                      last["evaluation_seconds"].get<double>();
  EXPECT_NEAR(entries[1]["training_cost"]["seconds"], cost, 1e-6);
  const double plain = entries[0]["tokens_per_second"], drafted = entries[1]["tokens_per_second"];
  if (drafted > plain) {
    const double tokens = cost / (1 / plain - 1 / drafted);
    EXPECT_NEAR(entries[1]["break_even_tokens"], tokens, 1e-3 * tokens);
    EXPECT_THAT(bench.err, HasSubstr("saved after"));
  } else {
    EXPECT_TRUE(entries[1]["break_even_tokens"].is_null());
    EXPECT_THAT(bench.err, HasSubstr("never saved"));
  }
  EXPECT_THAT(infer("inspect", {heads}).out, HasSubstr("training_cost.fit_seconds: "));
}

TEST_F(CostProcessTest, CountsTheStepsThatAKilledFitMakesAgain) {
  const std::vector<std::string> fit = {"--data",
                                        prepared(),
                                        "--output",
                                        folder_ / "run",
                                        "--kind",
                                        "medusa",
                                        "--steps",
                                        "8",
                                        "--batch",
                                        "4",
                                        "--draft-vocab",
                                        "0",
                                        "--eval-prompts",
                                        "0",
                                        "--checkpoint-every",
                                        "5",
                                        "--keep-checkpoints",
                                        "0",
                                        "--threads",
                                        "1"};
  const auto logged_seconds = [&](int64_t after) {
    double seconds = 0;
    for (const json& line : test::records_of(folder_ / "run" / "log.jsonl"))
      if (line["step"] > after) seconds += line["seconds"].get<double>();
    return seconds;
  };
  ASSERT_EQ(run("fit", fit).code, 0);
  const double first = logged_seconds(0), repeated = logged_seconds(5);
  fs::remove_all(folder_ / "run" / "checkpoints" / "step-000008");  // as if killed before it was written
  auto again = fit;
  again.insert(again.end(), {"--resume", "auto"});
  ASSERT_EQ(run("fit", again).code, 0);
  EXPECT_GT(repeated, 0);
  const json training = config_of(folder_ / "run" / "last")["training"];
  EXPECT_NEAR(training["seconds"], first + logged_seconds(5), 1e-9);
  EXPECT_EQ(training["joules"], 0);  // those of the first try are not known
}

TEST_F(CostProcessTest, CountsTheHeadsThatARunBeganWithAndSaysWhereFeaturesWereStored) {
  const std::string store = prepared();
  const auto fit = [&](const std::string& output, std::vector<std::string> more) {
    more.insert(more.begin(),
                {"--data", store, "--output", folder_ / output, "--kind", "medusa", "--steps", "8", "--batch",
                 "4", "--draft-vocab", "0", "--eval-prompts", "0", "--threads", "1"});
    const test::Ran ran = run("fit", more);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return config_of(folder_ / output / "last")["training"];
  };
  const json first = fit("first", {"--feature-file", folder_ / "features"});
  const json second =
      fit("second", {"--feature-file", folder_ / "features", "--init-heads", folder_ / "first" / "last"});
  EXPECT_FALSE(first.contains("features_from_file"));
  EXPECT_FALSE(first.contains("initial_heads"));
  EXPECT_EQ(second["features_from_file"], true);
  EXPECT_EQ(second["initial_heads"]["fit_seconds"], first["seconds"]);
  EXPECT_EQ(second["initial_heads"]["prepare_seconds"], 0);  // of the same store, counted once
}

}  // namespace
}  // namespace clover::train
