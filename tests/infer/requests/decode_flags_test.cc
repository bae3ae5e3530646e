#include "infer/requests/decode_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_EQ(beams.growth.length, 8);
  EXPECT_EQ(width_of(to_engine_options(parsed({"--draft", "beam"}), true).growth), 4);

  const EngineOptions best =
      to_engine_options(parsed({"--draft", "best-first", "--best-first-width", "7"}), true);
  EXPECT_EQ(width_of(best.growth), 7);
  EXPECT_EQ(resolved_budget(best.growth, -1), 60);
  EXPECT_EQ(width_of(to_engine_options(parsed({}), false).growth), 0);
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
