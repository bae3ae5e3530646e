// The file of measured costs that one run saves and the next one loads.
#include "infer/cost/cost_file.h"

#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

namespace clover::infer {
namespace {

using nlohmann::json;

json content_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return json::parse(in);
}

double seconds(int64_t rows) {
  return 0.010 + 0.0005 * double(rows);
}

PassCost known_costs(int timings = 20) {
  PassCost costs;
  for (int i = 0; i < timings; ++i)
    for (const int64_t rows : {1, 4, 16}) costs.observe(rows, 0, seconds(rows));
  costs.observe_attention(4, 300, 0.010, 0.0112);  // a microsecond an attended token
  return costs;
}

TEST(CostFile, HandsOnWhatIsKnownAndNewTimingsStillMoveIt) {
  const test::TemporaryFolder folder;
  const CostFile file(folder / "made" / "on the way" / "costs.json");
  EXPECT_EQ(file.read().timed_row_counts(), 0);
  file.write(known_costs());
  PassCost costs = file.read();
  EXPECT_EQ(costs.timed_row_counts(), 3);
  for (const int64_t rows : {1, 2, 4, 9, 16})
    EXPECT_NEAR(costs.expected_seconds(rows), seconds(rows), 1e-9) << rows;
  EXPECT_NEAR(costs.expected_seconds(8, 5000), seconds(8) + 0.005, 1e-6);
  EXPECT_EQ(costs.attention_context(), 300);
  EXPECT_TRUE(costs.has_timings(16, 3));
  costs.rescale(1 / 1.5);  // neighbours have left
  for (const int64_t rows : {1, 2, 4, 9, 16})
    EXPECT_NEAR(costs.expected_seconds(rows) * 1.5 / seconds(rows), 1, 1e-9);
  EXPECT_NEAR(costs.expected_seconds(8, 5000) * 1.5, seconds(8) + 0.005, 1e-6);
  for (int i = 0; i < 24; ++i) costs.observe(4, 0, seconds(4));
  EXPECT_NEAR(costs.expected_seconds(4) / seconds(4), 1, 0.1);
}

// What was found too dear is not visited, and must not be believed for ever.
TEST(CostFile, WhatNoRunTimesAgainFades) {
  const test::TemporaryFolder folder;
  const CostFile file(folder / "costs.json");
  file.write(known_costs());
  for (int runs = 0; runs < 20; ++runs) {
    PassCost costs = file.read();
    EXPECT_EQ(costs.has_timings(16, 3), runs < 10) << runs;
    costs.observe(1, 0, seconds(1));
    file.write(costs);
  }
  EXPECT_TRUE(file.read().has_timings(1, 3));
  EXPECT_NEAR(file.read().expected_seconds(16), seconds(16), 1e-9);
}

TEST(CostFile, OddFirstPassesDoNotAddUpOverRuns) {
  const test::TemporaryFolder folder;
  const CostFile file(folder / "costs.json");
  for (const double odd : {0.7, 1.2, 1.5}) {
    PassCost learnt;
    for (int i = 0; i < 20; ++i)
      for (int64_t rows = 1; rows <= 64; rows *= 2) learnt.observe(rows, 0, seconds(rows));
    file.write(learnt);
    for (int runs = 0; runs < 30; ++runs) {
      PassCost costs = file.read();
      costs.observe(4, 0, odd * seconds(4));
      for (int pass = 0; pass < 100; ++pass) {
        const int64_t rows = pass % 33 == 32 ? 1 : 3 + pass % 3;
        if (rows == 1) costs.mark_stale(1);
        costs.observe(rows, 0, seconds(rows));
      }
      file.write(costs);
    }
    for (const int64_t rows : {1, 4, 8, 16})
      EXPECT_NEAR(file.read().expected_seconds(rows) / seconds(rows), 1, 0.1);
  }
}

TEST(CostFile, WhatMakesNoSenseCountsAsNone) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder / "costs.json";
  const CostFile file(path);
  file.write(known_costs());
  const json good = content_of(path);
  const auto points_of = [&](const json& content) {
    folder.write("costs.json", content.dump());
    return file.read().timed_row_counts();
  };
  ASSERT_EQ(points_of(good), 3);
  const int64_t now = std::time(nullptr), week = 7 * 24 * 3600;
  const json bad_rows[] = {json(3),
                           json::array({1}),
                           json::array({json::array({1, 0.01})}),
                           json::array({json::array({1, -0.01, 3})}),
                           json::array({json::array({0, 0.01, 3})}),
                           json::array({json::array({1, 0, 3})}),
                           json::array({json::array({1.5, 0.01, 3})}),
                           json::array({json::array({1, "0.01", 3})}),
                           json::array({json::array({1, 0.01, 0})}),
                           json::array({json::array({1, 1e308, 3})}),
                           json::array({json::array({1, 1e-300, 3})}),
                           json::array({json::array({1, 0.01, 1e300})}),
                           json::array({json::array({int64_t{1} << 62, 0.01, 3})}),
                           json::array({json::array({std::numeric_limits<uint64_t>::max(), 0.01, 3})}),
                           json::array({json::array({4, 0.01, 3}), json::array({4, 0.01, 3})}),
                           json(std::vector<json>(5000, json::array({1, 0.01, 3})))};
  for (const json& rows : bad_rows) {
    json content = good;
    content["rows"] = rows;
    EXPECT_EQ(points_of(content), 0) << rows.dump().substr(0, 80);
  }
  const std::pair<const char*, json> bad_fields[] = {
      {"format", 2},
      {"format", "1"},
      {"since", now + 3600},
      {"since", now - week - 1},
      {"since", std::numeric_limits<int64_t>::min()},
      {"since", std::numeric_limits<uint64_t>::max()},
      {"since", "now"},
      {"seconds_per_position", -1},
      {"seconds_per_position", nullptr},
      {"attention_context", -5},
      {"attention_context", 1e300},
      {"attention_context", std::numeric_limits<int64_t>::max()},
      {"seconds_per_position", 1e308}};
  for (const auto& [name, value] : bad_fields) {
    json content = good;
    content[name] = value;
    EXPECT_EQ(points_of(content), 0) << name << " " << value;
    content.erase(name);
    EXPECT_EQ(points_of(content), 0) << "without " << name;
  }
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("\0\xff", 2),
        good.dump().substr(0, 60), std::string(3 << 20, ' ')}) {
    folder.write("costs.json", text);
    EXPECT_EQ(file.read().timed_row_counts(), 0) << text.substr(0, 60);
  }
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_EQ(file.read().timed_row_counts(), 0);
}

TEST(CostFile, AgesHoweverOftenItIsWritten) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder / "costs.json";
  const CostFile file(path);
  file.write(known_costs());
  json content = content_of(path);
  const int64_t six_days_ago = std::time(nullptr) - 6 * 24 * 3600;
  content["since"] = six_days_ago;
  folder.write("costs.json", content.dump());
  file.write(file.read());
  EXPECT_EQ(content_of(path)["since"], six_days_ago);
  content["since"] = six_days_ago - 2 * 24 * 3600;
  folder.write("costs.json", content.dump());
  file.write(known_costs());
  EXPECT_GT(content_of(path)["since"], six_days_ago);
}

TEST(CostFile, WhatCannotBeWrittenIsNot) {
  const test::TemporaryFolder folder;
  const std::filesystem::path in_the_way = folder.write("file", "mine");
  CostFile(in_the_way / "costs.json").write(known_costs());
  EXPECT_EQ(std::filesystem::file_size(in_the_way), 4u);
  CostFile().write(known_costs());
  EXPECT_EQ(CostFile().read().timed_row_counts(), 0);
  CostFile(folder / "costs.json").write(PassCost());  // nothing was learnt
  EXPECT_FALSE(std::filesystem::exists(folder / "costs.json"));
}

TEST(CostFile, StaysSmallAfterAJobThatSawEveryNumberOfRows) {
  const test::TemporaryFolder folder;
  PassCost costs = known_costs();
  for (int64_t rows = 1; rows <= 5000; ++rows) costs.observe(rows, 0, seconds(rows));
  const CostFile file(folder / "costs.json");
  file.write(costs);
  const PassCost read = file.read();
  EXPECT_EQ(read.timed_row_counts(), 512);
  EXPECT_TRUE(read.has_timings(16, 8));  // the best known are kept
}

}  // namespace
}  // namespace clover::infer
