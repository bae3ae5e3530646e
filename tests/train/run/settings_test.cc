#include "train/run/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "data/files/error.h"
#include "tests/support/input_error.h"

namespace clover::train {
namespace {

FitSettings sound() {
  FitSettings settings;
  settings.target = "target";
  settings.data = "data";
  return settings;
}

std::string complaint(const FitSettings& settings) {
  return test::input_error([&] { settings.check(); });
}

TEST(SettingsTest, NamesTheSettingThatIsOutOfRange) {
  EXPECT_EQ(complaint(sound()), "");
  FitSettings settings = sound();
  settings.lr = 0;
  EXPECT_THAT(complaint(settings), testing::HasSubstr("--lr"));
  settings = sound();
  settings.kind = "kestrel";
  EXPECT_THAT(complaint(settings),
              testing::AllOf(testing::HasSubstr("kestrel"), testing::HasSubstr("medusa")));
  settings = sound();
  settings.head_decay = std::nan("");
  EXPECT_THAT(complaint(settings), testing::HasSubstr("--head-decay"));
  settings = sound();
  settings.epochs = std::numeric_limits<double>::infinity();
  EXPECT_THAT(complaint(settings), testing::HasSubstr("--epochs is inf"));
  settings = sound();
  settings.target = "";
  EXPECT_THAT(complaint(settings), testing::HasSubstr("--target"));
  settings = sound();
  settings.loss = "cross-entropy + 0.1 smooth";
  EXPECT_THAT(complaint(settings), testing::HasSubstr("\"smooth\" is no term"));
  settings = sound();
  settings.self_feed = 1.5;
  EXPECT_THAT(complaint(settings), testing::HasSubstr("--self-feed is 1.5"));
  settings = sound();
  settings.distill_samples = 5;
  EXPECT_EQ(complaint(settings), "");
  settings.loss = "lk";
  EXPECT_THAT(complaint(settings), testing::HasSubstr("has no cross-entropy"));
}

TEST(SettingsTest, AContinuedRunMayChangeOnlyWhatTouchesNoWeight) {
  const nlohmann::json recorded = sound().to_json();
  FitSettings settings = sound();
  settings.eval_every = 7;
  settings.checkpoint_every = 9;
  settings.feature_cache = 5;
  EXPECT_NO_THROW(settings.check_continues(recorded));
  settings.threads = 64;
  EXPECT_THROW(settings.check_continues(recorded), data::InputError);
}

TEST(SettingsTest, MedusaHasNoCloverSettings) {
  FitSettings settings = sound();
  EXPECT_EQ(settings.drafter_settings().size(), 6u);
  settings.kind = "medusa";
  EXPECT_EQ(settings.drafter_settings(), (nlohmann::json{{"heads", 3}, {"layers", 1}, {"own_heads", false}}));
  EXPECT_EQ(complaint(settings), "");  // as run.toml records them
  settings.kind_options["regression"] = "concat";
  EXPECT_THAT(complaint(settings), testing::HasSubstr("--regression: heads of kind medusa have none"));
  settings.kind_options["regression"] = "attention";
  settings.kind_options["tap-layers"] = "1";
  EXPECT_THAT(complaint(settings), testing::HasSubstr("--tap-layers: heads of kind medusa have none"));
  settings.kind = "clover";
  EXPECT_EQ(complaint(settings), "");
}

TEST(SettingsTest, OnlyTheSettingsOfTheKindAreRecorded) {
  FitSettings settings = sound();
  settings.kind = "medusa";
  EXPECT_FALSE(settings.to_json().contains("regression"));
  EXPECT_EQ(settings.to_json().at("heads"), 3);
  settings.kind_options["heads"] = 5;
  EXPECT_EQ(settings.to_json().at("heads"), 5);
  EXPECT_THAT(settings.to_toml(), testing::AllOf(testing::HasSubstr("heads = 5\n"),
                                                 testing::Not(testing::HasSubstr("tap-layers"))));
  // Older runs record the settings of all kinds.
  nlohmann::json older = settings.to_json();
  older["regression"] = "attention";
  older["augmenting-layers"] = 2;
  EXPECT_NO_THROW(settings.check_continues(older));
  EXPECT_TRUE(FitSettings::same_weights(older, settings.to_json()));
  settings.kind_options["heads"] = 17;
  EXPECT_THAT(complaint(settings), testing::HasSubstr("--heads is 17, expected an integer from 1 to 16"));
}

TEST(SettingsTest, TappedLayersAscend) {
  FitSettings settings = sound();
  EXPECT_EQ(settings.drafter_settings().at("tap_layers"), nlohmann::json::array());
  settings.kind_options["tap-layers"] = "1,10,20";
  EXPECT_EQ(complaint(settings), "");
  EXPECT_EQ(settings.drafter_settings().at("tap_layers"), (nlohmann::json{1, 10, 20}));
  for (const char* wrong :
       {"0", "01", "1,02", "-1", "1,1", "2,1", ",", "1,", ",1", "1 2", "1, 2", "x", "99999999999999999999"}) {
    settings.kind_options["tap-layers"] = wrong;
    EXPECT_THAT(complaint(settings), testing::HasSubstr("--tap-layers is \"" + std::string(wrong) + '"'));
  }
}

TEST(SettingsTest, WhatARunDidNotKnowYetIsAsByDefault) {
  nlohmann::json recorded = sound().to_json();
  recorded.erase("tap-layers");
  FitSettings settings = sound();
  EXPECT_NO_THROW(settings.check_continues(recorded));
  EXPECT_TRUE(FitSettings::same_weights(recorded, settings.to_json()));
  settings.kind_options["tap-layers"] = "1";
  EXPECT_THROW(settings.check_continues(recorded), data::InputError);
  EXPECT_FALSE(FitSettings::same_weights(recorded, settings.to_json()));
}

}  // namespace
}  // namespace clover::train
