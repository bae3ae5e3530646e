#include "infer/bench/training_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace clover::infer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json heads_config() {
  return {
      {"training",
       {{"seconds", 300},
        {"device_seconds", 1200},
        {"processes", 2},
        {"operations", 5e15},
        {"data",
         {{"sources", {{{"took", {{"seconds", 60.5}, {"tokens", 9000}}}}, {{"file", "bought.jsonl"}}}}}}}}};
}

json bench_entry(const char* draft, const char* heads, int64_t batch_size, double tokens_per_second) {
  return {{"draft", draft},
          {"heads", *heads ? json(heads) : json()},
          {"batch_size", batch_size},
          {"tokens_per_second", tokens_per_second}};
}

TEST(TrainingCost, IsTheFitsTimeAndThatOfTheAnswersThatRecordIt) {
  const TrainingCost cost = training_cost(heads_config()).value();
  EXPECT_EQ(cost.fit_seconds, 300);  // wall clock, though half of the run may have had more processes
  EXPECT_EQ(cost.answers_seconds, 60.5);
  EXPECT_EQ(cost.seconds(), 360.5);
  EXPECT_EQ(cost.operations, 5e15);
}

TEST(TrainingCost, CountsPreparationAndEvaluationsAndTheEnergyThatIsKnownOfAllParts) {
  json config = heads_config();
  json& training = config["training"];
  training["evaluation_seconds"] = 20;
  training["joules"] = 500;
  training["data"]["took"] = {{"seconds", 2}};
  EXPECT_EQ(training_cost(config).value().seconds(), 382.5);
  EXPECT_EQ(training_cost(config).value().joules, 0);  // the answers' is not known
  for (json& source : training["data"]["sources"]) source["took"]["joules"] = 100;
  EXPECT_EQ(training_cost(config).value().joules, 700);
}

TEST(TrainingCost, OfHeadsThatRecordOnlyASumOverProcesses) {
  json config = heads_config();
  config["training"].erase("seconds");
  EXPECT_EQ(training_cost(config).value().fit_seconds, 600);
}

TEST(TrainingCost, IsUnknownWhereNothingOrNonsenseIsRecorded) {
  EXPECT_FALSE(training_cost({{"training", {{"steps", 0}, {"random", true}}}}).has_value());
  EXPECT_FALSE(training_cost({{"training", {{"device_seconds", -1}}}}).has_value());
  EXPECT_FALSE(training_cost({{"training", {{"device_seconds", "long"}}}}).has_value());
  EXPECT_FALSE(training_cost(json::object()).has_value());
}

TEST(TrainingCost, IsThatOfTheWholeRunAndOfTheHeadsThatItBeganWith) {
  json config = heads_config();
  json& training = config["training"];
  training["run"] = {{"seconds", 500}, {"evaluation_seconds", 7}, {"operations", 9e15}, {"joules", 50}};
  training["initial_heads"] = {{"fit_seconds", 40}, {"answers_seconds", 30}, {"operations", 1e15}};
  training["features_from_file"] = true;
  const TrainingCost cost = training_cost(config).value();
  EXPECT_EQ(cost.fit_seconds, 540);
  EXPECT_EQ(cost.evaluation_seconds, 7);
  EXPECT_EQ(cost.answers_seconds, 90.5);
  EXPECT_EQ(cost.operations, 1e16);
  EXPECT_EQ(cost.joules, 0);  // that of the first heads is not known
  EXPECT_EQ(cost.unrecorded_sources, 1);
  EXPECT_EQ(to_json(cost)["unrecorded_sources"], 1);
  EXPECT_EQ(to_json(cost)["features_from_file"], true);
}

TEST(TrainingCost, ThatCannotBeIsNone) {
  json config = heads_config();
  config["training"]["operations"] = 1e300;
  config["training"]["data"]["sources"][0]["took"]["seconds"] = 1e308;
  const TrainingCost cost = training_cost(config).value();
  EXPECT_EQ(cost.operations, 0);
  EXPECT_EQ(cost.answers_seconds, 0);
  EXPECT_EQ(cost.unrecorded_sources, 2);
}

TEST(TrainingCost, IsSavedAfterAsManyTokensAsTheSavingOfOneDividesIt) {
  const TrainingCost cost{.answers_seconds = 20, .fit_seconds = 80};
  // 10 ms a token plain and 5 ms with heads: 5 ms saved a token, so 100 s take 20,000 tokens.
  EXPECT_DOUBLE_EQ(break_even_tokens(cost, 100, 200).value(), 20000);
  EXPECT_FALSE(break_even_tokens(cost, 100, 100).has_value());
  EXPECT_FALSE(break_even_tokens(cost, 100, 90).has_value());
  EXPECT_FALSE(break_even_tokens(cost, 0, 90).has_value());
}

TEST(TrainingCost, OfABenchIsSaidForTheFastestPolicyOfEachBatchSize) {
  json entries = {bench_entry("off", "", 1, 100),        bench_entry("off", "", 4, 300),
                  bench_entry("clover", "mine", 1, 150), bench_entry("auto", "mine", 1, 200),
                  bench_entry("auto", "mine", 4, 290),   bench_entry("auto", "unrecorded", 1, 400)};
  add_break_even(entries, {{"mine", TrainingCost{.fit_seconds = 100}}});
  EXPECT_FALSE(entries[0].contains("break_even_tokens"));
  EXPECT_DOUBLE_EQ(entries[2]["break_even_tokens"], 30000);
  EXPECT_DOUBLE_EQ(entries[3]["break_even_tokens"], 20000);
  EXPECT_TRUE(entries[4]["break_even_tokens"].is_null());
  EXPECT_EQ(entries[4]["training_cost"]["fit_seconds"], 100);
  EXPECT_FALSE(entries[5].contains("break_even_tokens"));
  entries[3]["requests"] = 10;
  entries[3]["tokens"] = 1000;
  const std::string table = break_even_table(entries);
  EXPECT_THAT(
      table, HasSubstr("at batch 1 under auto that is saved after 20000 tokens, 202 answers of this length"));
  EXPECT_THAT(table, HasSubstr("at batch 4 under auto that is never saved"));
  EXPECT_THAT(table, HasSubstr("answers not recorded"));
}

}  // namespace
}  // namespace clover::infer
