#include "train/run/checkpoint.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>

#include "data/files/error.h"
#include "data/files/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/run/tiny_run.h"

namespace clover::train {
namespace {

class CheckpointTest : public testing::Test {
 protected:
  void save(int64_t step, int64_t keep, const std::string& target = "t", double best = 2.25) {
    const nlohmann::json identity{
        {"settings", {{"seed", 1}, {"feature-cache", 1000 * best}}}, {"target", target}, {"data", "d"}};
    Checkpoints(folder_).save({.step = step,
                               .tokens = 10 * step,
                               .seconds = 1.5,
                               .device_seconds = 3,
                               .evaluation_seconds = 0.75,
                               .joules = 40,
                               .operations = 3e12,
                               .best_tokens_per_step = best,
                               .best_step = step - 1,
                               .evaluated_step = step,
                               .evaluation = {{"tokens_per_step", 2.25}},
                               .best_eval_size = nullptr},
                              {identity, {{"training", {{"steps", step}}}}}, optimiser_,
                              at::tensor({1, 4}, at::kLong), keep);
  }
  /// The inode of the file with the weights; it changes when the file is written again.
  static ino_t weights_file(const std::filesystem::path& checkpoint) {
    struct stat status {};
    EXPECT_EQ(::stat((checkpoint / "state.safetensors").c_str(), &status), 0);
    return status.st_ino;
  }
  void edit(const std::filesystem::path& file, const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json json = data::read_json(file);
    change(json);
    data::write_file_atomically(file, json.dump());
  }
  const test::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
  at::Tensor weight_ = at::ones({2, 2}).requires_grad_(true);
  AdamW optimiser_{{{"w", weight_}}, {}};
};

TEST_F(CheckpointTest, ReturnsWhatWasSaved) {
  EXPECT_FALSE(Checkpoints(folder_).newest());
  save(7, 0);
  const SavedRun saved = read_checkpoint(*Checkpoints(folder_).newest());
  EXPECT_EQ(saved.state.step, 7);
  EXPECT_EQ(saved.state.tokens, 70);
  EXPECT_EQ(saved.state.best_tokens_per_step, 2.25);
  EXPECT_EQ(saved.state.best_step, 6);
  EXPECT_EQ(saved.state.evaluation.at("tokens_per_step"), 2.25);
  EXPECT_EQ(saved.identity.at("target"), "t");
  EXPECT_EQ(saved.heads_metadata.at("training").at("steps"), 7);
  EXPECT_TRUE(saved.token_map.equal(at::tensor({1, 4}, at::kLong)));
}

TEST_F(CheckpointTest, KeepsTheNewestAndSavesAStepTwice) {
  for (const int64_t step : {2, 10, 100}) save(step, 2);
  save(100, 2);
  EXPECT_EQ(*Checkpoints(folder_).newest(), Checkpoints(folder_).at_step(100));
  EXPECT_TRUE(std::filesystem::exists(Checkpoints(folder_).at_step(10)));
  EXPECT_FALSE(std::filesystem::exists(Checkpoints(folder_).at_step(2)));
}

TEST_F(CheckpointTest, WhatCameBehindAStepCanBeRemoved) {
  for (const int64_t step : {3, 6, 9, 12}) save(step, 0);
  const Checkpoints checkpoints(folder_);
  std::filesystem::resize_file(checkpoints.at_step(12) / "state.safetensors", 10);
  EXPECT_THAT(checkpoints.remove_later(6), testing::ElementsAre(12, 9));
  EXPECT_THAT(checkpoints.steps(), testing::ElementsAre(3, 6));
  EXPECT_THAT(checkpoints.remove_later(6), testing::IsEmpty());
}

TEST_F(CheckpointTest, TheOnlyCheckpointIsNeverAwayWhenItsStepIsSavedAgain) {
  save(100, 1);
  const auto checkpoint = *Checkpoints(folder_).newest();
  const ino_t before = weights_file(checkpoint);
  save(100, 1, "t", 3.0);
  EXPECT_EQ(weights_file(checkpoint), before);
  EXPECT_EQ(read_checkpoint(checkpoint).state.best_tokens_per_step, 3.0);
  save(100, 1, "another run's");
  EXPECT_NE(weights_file(checkpoint), before);
  EXPECT_EQ(read_checkpoint(checkpoint).identity.at("target"), "another run's");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ / "checkpoints"), {}), 1);
}

TEST_F(CheckpointTest, WhatAKilledProcessLeftIsNoCheckpoint) {
  save(3, 0);
  std::filesystem::create_directories(folder_ / "checkpoints/.partial-step-000009");
  std::filesystem::create_directories(folder_ / "checkpoints/.step-000003.old.4711");
  std::filesystem::create_directories(folder_ / "checkpoints/step-000012");  // no state.json inside
  EXPECT_EQ(*Checkpoints(folder_).newest(), Checkpoints(folder_).at_step(3));
  Checkpoints(folder_).remove_leftovers();
  EXPECT_FALSE(std::filesystem::exists(folder_ / "checkpoints/.partial-step-000009"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "checkpoints/.step-000003.old.4711"));
}

TEST_F(CheckpointTest, RefusesAFolderThatIsNone) {
  EXPECT_THROW(read_checkpoint(folder_), data::InputError);
  save(3, 0);
  const auto checkpoint = *Checkpoints(folder_).newest();
  const auto state = checkpoint / "state.json";
  for (const char* text : {"{\"format_version\": 1}", "{\"format_version\": 2}", "[]"}) {
    data::write_file_atomically(state, text);
    EXPECT_THROW(read_checkpoint(checkpoint), data::InputError) << text;
  }
}

TEST_F(CheckpointTest, RefusesPartsThatDoNotFit) {
  save(3, 0);
  const auto checkpoint = *Checkpoints(folder_).newest();
  const auto state = checkpoint / "state.json";
  const std::string whole = data::read_file(state);
  using Json = nlohmann::json;
  const std::vector<std::function<void(Json&)>> damages{
      [](Json& json) { json["identity"] = 7; },
      [](Json& json) { json["identity"]["target"] = 7; },
      [](Json& json) { json["identity"].erase("data"); },
      [](Json& json) { json["identity"]["settings"] = 7; },
      [](Json& json) { json["about"] = 7; },
      [](Json& json) { json["draft_vocab"] = 3; },
      [](Json& json) { json["draft_vocab"] = 0; },
      [](Json& json) { json["step"] = -1; },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    edit(state, damages[i]);
    EXPECT_THROW(read_checkpoint(checkpoint), data::InputError) << i;
    data::write_file_atomically(state, whole);
  }
  EXPECT_NO_THROW(read_checkpoint(checkpoint));
  std::filesystem::remove(checkpoint / "token_map.safetensors");
  EXPECT_THROW(read_checkpoint(checkpoint), data::InputError);
}

TEST_F(CheckpointTest, RefusesWeightsOfAnotherShapeOrDtype) {
  save(3, 0);
  const auto checkpoint = *Checkpoints(folder_).newest();
  EXPECT_NO_THROW(check_optimiser(checkpoint, {{"w", weight_}}));
  EXPECT_THROW(check_optimiser(checkpoint, {{"w", at::ones({3})}}), data::InputError);
  EXPECT_THROW(check_optimiser(checkpoint, {{"v", weight_}}), data::InputError);
  EXPECT_THROW(check_optimiser(checkpoint, {}), data::InputError);
  data::NamedTensors state = optimiser_.state();
  state[1].second = state[1].second.to(at::kHalf);
  data::write_safetensors(checkpoint / "state.safetensors", state);
  EXPECT_THROW(check_optimiser(checkpoint, {{"w", weight_}}), data::InputError);
}

}  // namespace
}  // namespace clover::train
