#include "infer/requests/decode_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "infer/requests/report.h"
#include "tests/support/input_error.h"

namespace clover::infer {
namespace {

using ::testing::HasSubstr;

DecodeFlags parsed(std::vector<std::string> arguments) {
  CLI::App app;
  DecodeFlags flags;
  add_draft_options(app, flags);
  std::ranges::reverse(arguments);  // as CLI11 takes them
  app.parse(arguments);
  return flags;
}

TEST(DecodeFlags, SizeTheTreesOfTheirPolicy) {
  const EngineOptions beams =
      to_engine_options(parsed({"--draft", "beam", "--beam-width", "64", "--beam-length", "8"}), true);
  EXPECT_EQ(to_string(beams.growth.policy), "beam");
  EXPECT_EQ(beams.growth.width, 64);
  EXPECT_EQ(beams.growth.depth, 8);
  EXPECT_EQ(width_of(to_engine_options(parsed({"--draft", "beam"}), true).growth), 4);

  const EngineOptions best =
      to_engine_options(parsed({"--draft", "best-first", "--best-first-width", "7"}), true);
  EXPECT_EQ(width_of(best.growth), 7);
  EXPECT_EQ(resolved_budget(best.growth, -1), 60);
  EXPECT_EQ(width_of(to_engine_options(parsed({}), false).growth), 0);
}

// What a tree is bounded by, whatever larger number was asked for.
TEST(DecodeFlags, ReportTheBudgetThatIsUsed) {
  const auto reported = [](const std::string& draft, const std::string& budget) {
    const EngineOptions options = to_engine_options(parsed({"--draft", draft, "--budget", budget}), true);
    return describe_growth(options, "heads").at("budget");
  };
  EXPECT_EQ(reported("clover", "9"), 9);
  EXPECT_EQ(reported("clover", "4096"), 255);
  EXPECT_EQ(reported("auto", "4096"), 63);
  EXPECT_EQ(reported("off", "9"), 0);
}

TEST(DecodeFlags, ReportTheCutsThatAreUsed) {
  const auto reported = [](const std::string& draft) {
    const EngineOptions options =
        to_engine_options(parsed({"--draft", draft, "--tree-top-p", "0.7", "--tree-cut", "0.5"}), true);
    return describe_growth(options, "heads").at("policy");
  };
  EXPECT_EQ(reported("clover"), (nlohmann::json{{"top_p", 0.7}, {"relative_cut", 0.5}}));
  EXPECT_EQ(reported("auto"), (nlohmann::json{{"top_p", 0.95}, {"relative_cut", 0.0}}));
  EXPECT_EQ(reported("chain"), nlohmann::json::object());
}

TEST(DecodeFlags, RefuseSizesOfAnotherPolicyAndSizesOutOfRange) {
  EXPECT_THAT(test::input_error([] {
                to_engine_options(parsed({"--beam-width", "4"}), true);
              }),
              HasSubstr("--beam-width: expected --draft beam, whose trees it sizes, found --draft auto"));
  EXPECT_THAT(test::input_error([] {
                to_engine_options(parsed({"--draft", "best-first", "--beam-length", "4"}), true);
              }),
              HasSubstr("--beam-length: expected --draft beam"));
  for (const char* width : {"65", "-1", "4.5"})
    EXPECT_THROW(parsed({"--draft", "beam", "--beam-width", width}), CLI::ParseError) << width;
  for (const char* length : {"17"})
    EXPECT_THROW(parsed({"--draft", "beam", "--beam-length", length}), CLI::ParseError) << length;
  EXPECT_THROW(parsed({"--draft", "clover", "--clover-width", "4"}), CLI::ParseError);
}

}  // namespace
}  // namespace clover::infer
