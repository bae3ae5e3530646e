#include "model/drafters/setting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "model/drafters/factory.h"
#include "tests/support/input_error.h"

namespace clover::model {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::vector<Setting>& some() {
  static const std::vector<Setting> settings{
      Setting::integer("heads", 3, 1, 16, "heads"), Setting::number("base", 0.5, 0, 1e6, "base"),
      Setting::boolean("own", false, "own"), Setting::choice("part", {"whole", "half"}, "part"),
      Setting::layers("taps", 1, "taps")};
  return settings;
}

std::string complaint(const json& given, int64_t layers = unknown_layer_count) {
  return test::input_error([&] { complete_settings("made-up", some(), given, layers); });
}

TEST(Setting, MissingOnesAreAsByDefaultAndOthersAreKept) {
  const json usual{{"heads", 3}, {"base", 0.5}, {"own", false}, {"part", "whole"}, {"taps", json::array()}};
  EXPECT_EQ(complete_settings("made-up", some(), json::object()), usual);
  const json all{{"heads", 16}, {"base", 1e6}, {"own", true}, {"part", "half"}, {"taps", {1, 7}}};
  EXPECT_EQ(complete_settings("made-up", some(), all, /*layers=*/8), all);
}

TEST(Setting, AWrongValueIsNamedWithWhatIsExpected) {
  EXPECT_THAT(complaint({{"hedas", 3}}), HasSubstr("Setting \"hedas\" is unknown to drafter made-up."));
  EXPECT_THAT(complaint(json::array()), HasSubstr("expected a JSON object"));
  for (const json& wrong : {json(0), json(17), json(3.0), json("3"), json(nullptr), json(~0ull)})
    EXPECT_THAT(complaint({{"heads", wrong}}), HasSubstr("\"heads\" of drafter made-up is " + wrong.dump() +
                                                         ", expected an integer from 1 to 16."));
  for (const json& wrong : {json(-1), json(1e7), json("x"), json(true)})
    EXPECT_THAT(complaint({{"base", wrong}}), HasSubstr("expected a number from 0 to 1e+06."));
  for (const json& wrong : {json(0), json("true"), json(nullptr)})
    EXPECT_THAT(complaint({{"own", wrong}}), HasSubstr("expected true or false."));
  for (const json& wrong : {json("third"), json(1), json::array({"half"})})
    EXPECT_THAT(complaint({{"part", wrong}}), HasSubstr("expected one of: whole, half."));
  EXPECT_THAT(complaint({{"taps", {1, 8}}}, 8),
              HasSubstr("expected a list of ascending integers from 1 to 7."));
}

TEST(Setting, TheCommandLineHasListsAsTexts) {
  for (const Setting& setting : some())
    EXPECT_EQ(setting.from_option(setting.to_option(setting.default_value())), setting.default_value())
        << setting.name();
  const Setting& taps = some().back();
  EXPECT_EQ(taps.from_option("1,10,20"), (json{1, 10, 20}));
  EXPECT_EQ(taps.to_option({1, 10, 20}), "1,10,20");
  EXPECT_THAT(test::input_error([&] { taps.from_option("2,1"); }), HasSubstr("Setting --taps is \"2,1\""));
  EXPECT_EQ(Setting::integer("gate_groups", 1, 1, 2, "").option_name(), "gate-groups");
}

/// What kinds name alike is one option, so it must be of one type.
TEST(Setting, KindsThatShareANameShareItsType) {
  std::set<std::string> names;
  for (const DrafterOption& option : drafter_options()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_FALSE(option.kinds.empty());
    for (const std::string& kind : option.kinds)
      EXPECT_EQ(drafter_kind(kind).setting_of_option(option.name)->type(), option.type)
          << "--" << option.name << " of " << kind;
  }
  for (const DrafterKind& kind : drafter_table()) {
    const json usual = complete_settings(kind.name, kind.settings, json::object());
    EXPECT_EQ(complete_settings(kind.name, kind.settings, usual), usual) << kind.name;
    EXPECT_EQ(settings_from_options(kind.name, options_from_settings(kind.name, usual)), usual) << kind.name;
  }
}

TEST(Setting, HelpNamesTheKindsThatHaveIt) {
  const auto help = [](const std::string& name) {
    for (const DrafterOption& option : drafter_options())
      if (option.name == name) return option.help;
    return std::string("no such option");
  };
  EXPECT_THAT(help("gate-groups"), testing::StartsWith("clover: "));
  EXPECT_THAT(help("augmenting-layers"), testing::StartsWith("clover2: "));
}

}  // namespace
}  // namespace clover::model
