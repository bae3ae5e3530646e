#include "train/logs/log.h"

#include <gtest/gtest.h>

#include "data/files/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/run/tiny_run.h"

namespace clover::train {
namespace {

TEST(LogTest, ContinuingDropsLaterStepsAndATornLine) {
  const test::TemporaryFolder folder;
  const auto file = folder / "log.jsonl";
  {
    Log log(file, -1);
    for (const int step : {1, 2, 3, 4}) log.write({{"step", step}, {"loss", 1.0 / step}});
  }
  const std::string whole = data::read_file(file);
  data::write_file_atomically(file, whole + "{\"step\": 2, \"lo");
  {
    Log log(file, 2);
    EXPECT_EQ(log.removed().steps, 0);  // none tells its seconds
    log.write({{"step", 3}, {"again", true}});
  }
  std::istringstream lines(data::read_file(file));
  std::vector<nlohmann::json> read;
  for (std::string line; std::getline(lines, line);) read.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[1]["step"], 2);
  EXPECT_EQ(read[2]["again"], true);
  { Log log(file, -1); }
  EXPECT_EQ(data::read_file(file), "");  // a new run begins a new log
}

TEST(LogTest, TellsWhatTheStepsTookThatItDrops) {
  const test::TemporaryFolder folder;
  const auto file = folder / "log.jsonl";
  {
    Log log(file, -1);
    EXPECT_EQ(log.removed().steps, 0);
    for (const int step : {1, 2, 3, 4}) log.write({{"step", step}, {"seconds", step}});
    log.write({{"step", 4}, {"evaluation", {{"tokens_per_step", 1.5}}}, {"seconds", 10}});
    log.write({{"step", 5}, {"seconds", "many"}});
  }
  const auto removed_after = [&, text = data::read_file(file)](int64_t step) {
    data::write_file_atomically(file, text);
    return Log(file, step).removed();
  };
  EXPECT_EQ(removed_after(2).steps, 7);
  EXPECT_EQ(removed_after(2).evaluations, 10);
  EXPECT_EQ(removed_after(-1).steps, 10);
  EXPECT_EQ(removed_after(4).evaluations, 0);
}

}  // namespace
}  // namespace clover::train
