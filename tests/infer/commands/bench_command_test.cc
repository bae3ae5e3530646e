// What `bench` and `verify-equal` measure and find.
#include "tests/infer/commands/commands.h"

namespace clover {
namespace {

TEST_F(Commands, BenchMeasuresAgainstPlainDecoding) {
  const std::string input = questions(4), report = (folder / "bench.json").string();
  const Ran ran = run({"bench", "--target", target, "--heads", heads(), "--input", input, "--batch-sizes",
                       "1,4", "--max-tokens", "8", "--draft", "off,clover,chain", "--budgets", "2,4",
                       "--rounds", "2", "--json", report});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const json figures = json::parse(test::text_of(report));
  EXPECT_TRUE(figures.contains("machine") && figures.contains("build"));
  std::multiset<std::string> found;
  for (const json& entry : figures["configurations"]) {
    found.insert(entry["draft"].get<std::string>() + " " + entry["budget"].dump() + " " +
                 entry["batch_size"].dump());
    EXPECT_EQ(entry["differs_from_off"], 0);
    EXPECT_EQ(entry["requests"], 4);
    EXPECT_EQ(entry["rounds"].size(), 2u);
    EXPECT_GT(entry["tokens_per_second"].get<double>(), 0);
    EXPECT_GE(entry["tokens_per_step"].get<double>(), 1);
    const double decoded = entry["tokens"].get<double>() - entry["requests"].get<double>();
    EXPECT_DOUBLE_EQ(entry["tokens_per_step"].get<double>(), decoded / entry["passes"].get<double>());
    EXPECT_EQ(entry["by_category"]["odd"]["requests"], 2);
    for (const char* name :
         {"heads", "policy", "temperature", "tokens", "passes", "seconds", "prefill_seconds",
          "calibration_seconds", "accepted_histogram", "time_share", "seconds_per_draft", "peak_memory"}) {
      EXPECT_TRUE(entry.contains(name)) << name;
    }
    EXPECT_EQ(entry["seconds_per_draft"].get<double>() > 0, entry["draft"] != "off");
    if (entry["draft"] == "off") {
      EXPECT_EQ(entry["ratio_to_off"], 1);
      EXPECT_EQ(entry["tokens_per_step"], 1);
    }
  }
  EXPECT_EQ(found, (std::multiset<std::string>{"off 0 1", "clover 2 1", "clover 4 1", "chain null 1",
                                               "off 0 4", "clover 2 4", "clover 4 4", "chain null 4"}));
}

TEST_F(Commands, BenchTellsHeadsOfOneNameApart) {
  const std::string first = heads();
  for (const char* run : {"one", "other"}) {
    std::filesystem::create_directory(folder / run);
    std::filesystem::copy(first, folder / run / "last");
  }
  const Ran ran = run({"bench", "--target", target, "--heads", (folder / "one" / "last").string(),
                       (folder / "other" / "last/").string(), "--input", questions(2), "--batch-sizes", "1",
                       "--max-tokens", "8", "--draft", "chain", "--rounds", "1"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr(" one/last "));
  EXPECT_THAT(ran.err, HasSubstr(" other/last "));
}

TEST_F(Commands, BenchMeasuresStepsByRows) {
  const std::string report = (folder / "rows.json").string(), trace = (folder / "trace.json").string();
  const Ran ran = run({"bench", "--target", target, "--rows", "1,5", "--context", "100", "--rounds", "2",
                       "--json", report, "--trace", trace});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_GT(json::parse(test::text_of(trace))["traceEvents"].size(), 0u);
  expect_refusal("bench --target " + target + " --rows 1 --rounds 1 --trace " +
                     (folder / "none" / "trace.json").string(),
                 "none/trace.json");
  const std::string twice = (folder / "twice.json").string();
  expect_refusal("bench --target " + target + " --rows 1 --rounds 1 --json " + twice + " --trace " + twice,
                 "--trace " + twice);
  expect_refusal("bench --target " + target + " --input " + questions(1) + " --rounds 1 --max-tokens 1",
                 "raise --max-tokens");
  const json entries = json::parse(test::text_of(report))["configurations"];
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[1]["rows"], 5);
  EXPECT_EQ(entries[1]["context"], 100);
  EXPECT_GT(entries[1]["seconds"].get<double>(), 0);
}

TEST_F(Commands, BenchMeasuresAShapeWithoutItsWeights) {
  const std::string shapes = CLOVER_SOURCE_DIR "/configs/targets/";
  const std::string report = (folder / "steps.json").string();
  const std::string real = folder.write("real.json", R"({"configurations": [
      {"draft": "clover", "kind": "clover", "budget": 2, "accepted_histogram": [1, 1, 2]}]})");
  const std::vector<std::string> steps = {"bench",
                                          "--random-weights",
                                          shapes + "smollm2-135m.json",
                                          "--batch-sizes",
                                          "2",
                                          "--context",
                                          "64",
                                          "--rounds",
                                          "1",
                                          "--random-heads",
                                          "clover,medusa",
                                          "--draft-vocab",
                                          "512",
                                          "--assume-acceptance",
                                          real,
                                          "--json",
                                          report};
  EXPECT_THAT(run(steps).err, HasSubstr("add one of them, plus 1 for the root, to --rows"));
  std::vector<std::string> with_rows = steps;
  with_rows.insert(with_rows.end(), {"--rows", "1,3"});
  const Ran ran = run(with_rows);
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("A projection"));
  const json figures = json::parse(test::text_of(report));
  EXPECT_EQ(figures["configurations"].size(), 4u);
  EXPECT_EQ(figures["configurations"][3]["draft_vocab"], 512);
  const json& configurations = figures["configurations"];
  const double seconds =
      configurations[1]["seconds"].get<double>() + configurations[2]["seconds"].get<double>();
  EXPECT_EQ(figures["projection"].size(), 2u);  // plain and clover: nothing is known of medusa
  EXPECT_NEAR(figures["projection"][1]["tokens_per_second"].get<double>(), 2 * 2.25 / seconds, 1e-6);
  json huge = json::parse(test::text_of(shapes + "llama-3.1-70b.json"));
  huge["num_hidden_layers"] = 100'000'000;
  expect_refusal("bench --random-weights " + folder.write("huge.json", huge.dump()).string(),
                 "GB are free on cpu");
}

TEST_F(Commands, VerifyEqualFindsNoDifference) {
  const Ran ran = run({"verify-equal", "--target", target, "--heads", heads(), "--input", questions(3),
                       "--max-tokens", "8", "--budgets", "4", "--batch-sizes", "1,3"});
  EXPECT_EQ(ran.code, 0) << ran.err << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("equal: 3 requests, 14 settings"));
}

}  // namespace
}  // namespace clover
