#include "infer/batch/batch_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/batch/stats_file.h"
#include "tests/infer/commands/output_records.h"
#include "tests/support/input_error.h"
#include "tests/support/temporary_folder.h"

namespace clover::infer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json openai_answer(int64_t line) {
  return {
      {"id", "batch_req_" + std::to_string(line)}, {"custom_id", "c"}, {"response", {}}, {"error", nullptr}};
}

class BatchOutputTest : public testing::Test {
 protected:
  BatchOutput open(bool retry_errors = false) { return BatchOutput(file, run, retry_errors); }

  std::string refusal(bool retry_errors = false) {
    return test::input_error([&] { open(retry_errors); });
  }

  test::TemporaryFolder folder;
  std::filesystem::path file = folder / "out.jsonl";
  json run = {{"settings", {{"max-batch", "4"}}},
              {"affects_output", {{"seed", 1}, {"dtype", "bfloat16"}}},
              {"input", {{"lines", 10}, {"hash", "aa"}}}};
};

TEST_F(BatchOutputTest, WritesALineAtOnceAndTheSettingsBesideIt) {
  BatchOutput output = open();
  output.write(2, answer(2));
  EXPECT_EQ(test::records_of(file).size(), 1u);  // before it is closed
  const json settings = json::parse(test::text_of(run_file_of(file)));
  EXPECT_EQ(settings["affects_output"]["seed"], 1);
  EXPECT_EQ(settings["settings"]["max-batch"], "4");
  EXPECT_EQ(settings["input"]["hash"], "aa");
}

TEST_F(BatchOutputTest, KnowsWhatIsDoneWhenContinued) {
  {
    BatchOutput output = open();
    output.write(2, answer(2));
    output.write(5, failure(5));
    output.write(7, openai_answer(7));
  }
  run["settings"]["max-batch"] = "16";  // changes no token
  BatchOutput output = open();
  EXPECT_EQ(output.done_count(), 3);
  EXPECT_EQ(output.failed_count(), 1);
  EXPECT_TRUE(output.done(2) && output.done(5) && output.done(7));
  EXPECT_FALSE(output.done(1));
  output.write(1, answer(1));
  EXPECT_EQ(test::records_of(file).size(), 4u);
}

TEST_F(BatchOutputTest, WhatAnsweringTookAddsUpOverProcesses) {
  const auto recorded = [&] { return recorded_cost(json::parse(test::text_of(run_file_of(file)))); };
  {
    BatchOutput output = open();
    output.write(2, answer(2));
    EXPECT_FALSE(recorded().has_value());
    output.set_cost({1.5, 20});
    output.sync();  // what a killed process leaves
  }
  {
    BatchOutput output = open();
    output.set_cost({0.25, 5});
    output.set_cost({0.5, 10});  // replaces what this process had taken before
    output.save_cost();
    EXPECT_EQ(output.cost().seconds, 2);
  }
  open();  // answers nothing
  EXPECT_EQ(recorded().value().seconds, 2);
  EXPECT_EQ(recorded().value().tokens, 30);
  EXPECT_EQ(recorded().value().joules, 0);
}

TEST_F(BatchOutputTest, WhatAJobTookBeforeItsFirstAnswerCountsUntilTheFileIsRemoved) {
  const auto stop_after = [&](double seconds) {
    BatchOutput output = open();
    output.set_cost({seconds, 0});
    output.save_cost();
    return output.cost().seconds;
  };
  EXPECT_EQ(stop_after(3), 3);
  EXPECT_EQ(stop_after(4), 7);
  run["affects_output"]["seed"] = 2;
  EXPECT_EQ(stop_after(1), 1);  // another job
  std::filesystem::remove(file);
  EXPECT_EQ(stop_after(5), 5);
}

TEST_F(BatchOutputTest, TheEnergyOfAJobIsKnownWhereThatOfEachProcessIs) {
  const AnsweringCost known{2, 20, 300}, unknown{1, 10, 0}, nothing{};
  EXPECT_EQ((known + known).joules, 600);
  EXPECT_EQ((known + nothing).joules, 300);
  EXPECT_EQ((known + unknown).joules, 0);
  EXPECT_EQ(recorded_cost({{"took", to_json(known)}}).value().joules, 300);
}

TEST_F(BatchOutputTest, ARetryKeepsTheLinkAndThePermissionsOfItsFile) {
  namespace fs = std::filesystem;
  const fs::path real = folder / "real.jsonl";
  fs::create_symlink(real, file);
  {
    BatchOutput output = open();
    output.write(2, answer(2));
    output.write(5, failure(5));
  }
  const auto owner = fs::perms::owner_read | fs::perms::owner_write;
  fs::permissions(real, owner);
  fs::permissions(run_file_of(file), owner);
  { open(true).write(5, answer(5)); }
  EXPECT_TRUE(fs::is_symlink(file));
  EXPECT_EQ(test::records_of(real).size(), 2u);
  EXPECT_EQ(fs::status(real).permissions(), owner);
  EXPECT_EQ(fs::status(run_file_of(file)).permissions(), owner);
}

TEST_F(BatchOutputTest, DoesNotMixTheAnswersOfDevices) {
  { open().write(2, answer(2)); }
  run["affects_output"]["device"] = "cuda";
  EXPECT_THAT(refusal(), HasSubstr("it was begun with device nothing, not \"cuda\""));
  file = folder / "gpu.jsonl";
  { open().write(2, answer(2)); }
  run["affects_output"].erase("device");
  EXPECT_THAT(refusal(), HasSubstr("it was begun with device \"cuda\", not without"));
  file = folder / "old.jsonl";  // of the version that named the CPU, too
  run["affects_output"]["device"] = "cpu";
  { open().write(2, answer(2)); }
  run["affects_output"].erase("device");
  EXPECT_EQ(refusal(), "");
}

TEST_F(BatchOutputTest, AJobThatRecordsNoFingerprintGoesOnAndAnotherTargetsDoesNot) {
  { open().write(2, answer(2)); }
  run["affects_output"][fingerprint_setting] = "one";
  EXPECT_EQ(refusal(), "");
  { open(); }  // records it from now on
  EXPECT_EQ(refusal(), "");
  run["affects_output"][fingerprint_setting] = "other";
  EXPECT_THAT(refusal(), HasSubstr("it was begun with fingerprint \"one\", not \"other\""));
}

TEST_F(BatchOutputTest, CutsOffATornLastLine) {
  { open().write(2, answer(2)); }
  const std::string whole = test::text_of(file);
  for (size_t torn : {size_t{1}, size_t{5}, size_t{200000}}) {
    folder.write("out.jsonl", whole + std::string(torn, '{'));
    BatchOutput output = open();
    EXPECT_EQ(output.done_count(), 1);
    EXPECT_EQ(test::text_of(file), whole);
  }
  folder.write("out.jsonl", whole.substr(0, whole.size() - 1));  // even when only the line feed is missing
  EXPECT_EQ(open().done_count(), 0);
  EXPECT_EQ(test::text_of(file), "");
}

TEST_F(BatchOutputTest, DropsErrorRecordsToDoThemAgain) {
  {
    BatchOutput output = open();
    output.write(2, answer(2));
    output.write(5, failure(5));
    output.write(6, answer(6));
  }
  BatchOutput output = open(true);
  EXPECT_EQ(output.done_count(), 2);
  EXPECT_EQ(output.failed_count(), 0);
  EXPECT_FALSE(output.done(5));
  output.write(5, answer(5));  // goes to the file that replaced the old one
  const std::vector<json> records = test::records_of(file);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[2]["line"], 5);
}

TEST_F(BatchOutputTest, RefusesOtherSettingsByName) {
  { open().write(2, answer(2)); }
  const std::string before = test::text_of(file), settings = test::text_of(run_file_of(file));
  run["affects_output"]["seed"] = 2;
  EXPECT_THAT(refusal(), HasSubstr("seed 1, not 2"));
  run["affects_output"]["seed"] = 1;
  run["input"]["hash"] = "bb";
  EXPECT_THAT(refusal(), HasSubstr("another input"));
  EXPECT_EQ(test::text_of(file), before);
  EXPECT_EQ(test::text_of(run_file_of(file)), settings);
}

TEST_F(BatchOutputTest, RefusesAFileThatNoJobWrote) {
  folder.write("out.jsonl", "precious\n");
  EXPECT_THAT(refusal(), HasSubstr("run.json"));
  EXPECT_EQ(test::text_of(file), "precious\n");
}

TEST_F(BatchOutputTest, RefusesAnswersThatAreNotOfThisInput) {
  { open().write(2, answer(2)); }
  const std::string whole = test::text_of(file);
  for (const std::string& wrong :
       {answer(11).dump(), answer(2).dump(), std::string("{\"text\": \"x\"}"), std::string("not json")}) {
    folder.write("out.jsonl", whole + wrong + "\n");
    EXPECT_THAT(refusal(), HasSubstr("line 2")) << wrong;
  }
}

TEST_F(BatchOutputTest, LetsOnlyOneProcessWrite) {
  BatchOutput output = open();
  output.write(1, answer(1));
  EXPECT_THAT(refusal(), HasSubstr("another process"));
}

TEST_F(BatchOutputTest, RefusesAFolderThatDoesNotExist) {
  file = folder / "none/out.jsonl";
  EXPECT_THAT(refusal(), HasSubstr("none/out.jsonl"));
}

TEST_F(BatchOutputTest, RecognisesStatsOfAnotherJobBeforeALineWasAnswered) {
  const auto stats = folder / "stats";
  run["settings"]["stats"] = stats.string();
  const std::string mine = open().job_hash();
  json other_run = run;
  other_run["affects_output"]["seed"] = 2;
  const std::string others = BatchOutput(folder / "other.jsonl", other_run, false).job_hash();
  EXPECT_NE(mine, others);
  const auto record = [](int64_t line, const json& hash) {
    json about = {{"line", line}, {"id", nullptr}, {"token_ids", {1, 2}}, {"accepted_histogram", {1}}};
    if (!hash.is_null()) about["job"] = hash;
    return about.dump() + "\n";
  };
  const auto refused = [&](const std::string& records) {
    folder.write("stats", records);
    return test::input_error([&] { check_stats_file(stats, file); });
  };
  EXPECT_EQ(refused(""), "");
  EXPECT_EQ(refused(record(1, mine) + record(2, mine) + "{\"line\": 3"), "");
  EXPECT_THAT(refused(record(1, mine) + record(2, others)), HasSubstr("line 2"));
  EXPECT_THAT(refused(record(1, others)), HasSubstr("found those of another job"));
  // Written before records had a hash: one that a kill left without its answer, and no more.
  EXPECT_EQ(refused(record(1, nullptr) + "{\"line\": 3"), "");
  EXPECT_THAT(refused(record(1, nullptr) + record(2, nullptr)), HasSubstr("line 1"));
  open().write(1, failure(1));
  EXPECT_THAT(refused(record(1, nullptr)), HasSubstr("another job")) << "the line failed";
  EXPECT_EQ(refused(record(2, nullptr)), "");
  open().write(2, answer(2));
  EXPECT_EQ(refused(record(2, nullptr) + record(3, nullptr)), "");
  EXPECT_EQ(refused(record(2, mine)), "");
  run["settings"]["stats"] = (folder / "elsewhere").string();
  open();
  EXPECT_THAT(refused(record(3, nullptr)), HasSubstr("another job")) << "this job wrote none there";
  run["settings"]["stats"] = "";
  open();
  EXPECT_THAT(refused(record(3, nullptr)), HasSubstr("another job"));
}

TEST_F(BatchOutputTest, KeepRecordsLeavesEachWantedLineOnce) {
  const auto stats = folder.write(
      "stats", answer(1).dump() + "\n" + answer(2).dump() + "\n" + answer(1).dump() + "\n{\"line\": 3");
  keep_records(stats, {1, 3});
  const std::vector<json> records = test::records_of(stats);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0]["line"], 1);
  keep_records(folder / "none", {1});
  EXPECT_FALSE(std::filesystem::exists(folder / "none"));
}

}  // namespace
}  // namespace clover::infer
