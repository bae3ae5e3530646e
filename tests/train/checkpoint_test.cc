#include "train/checkpoint.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "data/error.h"
#include "data/files.h"
#include "tests/train/tiny_run.h"

namespace clover::train {
namespace {

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override { folder_ = fresh_folder("checkpoint_test"); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void save(int64_t step, int64_t keep) {
    Checkpoints(folder_).save({step, 10 * step, 1.5, 2.25, step - 1, step}, {{"target", "t"}}, optimiser_,
                              at::tensor({1, 4}, at::kLong), keep);
  }
  std::filesystem::path folder_;
  at::Tensor weight_ = at::ones({2, 2}).requires_grad_(true);
  AdamW optimiser_{{{"w", weight_}}, {}};
};

TEST_F(CheckpointTest, ReturnsWhatWasSaved) {
  EXPECT_FALSE(Checkpoints(folder_).newest());
  save(7, 0);
  const SavedRun saved = read_checkpoint(*Checkpoints(folder_).newest());
  EXPECT_EQ(saved.state.step, 7);
  EXPECT_EQ(saved.state.tokens, 70);
  EXPECT_EQ(saved.state.best, 2.25);
  EXPECT_EQ(saved.state.best_step, 6);
  EXPECT_EQ(saved.identity.at("target"), "t");
  EXPECT_TRUE(saved.token_map.equal(at::tensor({1, 4}, at::kLong)));
}

TEST_F(CheckpointTest, KeepsTheNewestAndSavesAStepTwice) {
  for (const int64_t step : {2, 10, 100}) save(step, 2);
  save(100, 2);
  EXPECT_EQ(*Checkpoints(folder_).newest(), Checkpoints(folder_).at_step(100));
  EXPECT_TRUE(std::filesystem::exists(Checkpoints(folder_).at_step(10)));
  EXPECT_FALSE(std::filesystem::exists(Checkpoints(folder_).at_step(2)));
}

TEST_F(CheckpointTest, WhatAKilledProcessLeftIsNoCheckpoint) {
  save(3, 0);
  std::filesystem::create_directories(folder_ / "checkpoints/.partial-step-000009");
  std::filesystem::create_directories(folder_ / "checkpoints/step-000012");  // no state.json inside
  EXPECT_EQ(*Checkpoints(folder_).newest(), Checkpoints(folder_).at_step(3));
  Checkpoints(folder_).remove_leftovers();
  EXPECT_FALSE(std::filesystem::exists(folder_ / "checkpoints/.partial-step-000009"));
}

TEST_F(CheckpointTest, RefusesAFolderThatIsNone) {
  EXPECT_THROW(read_checkpoint(folder_), data::InputError);
  save(3, 0);
  const auto checkpoint = *Checkpoints(folder_).newest();
  data::write_file_atomically(checkpoint / "state.json", "{\"format_version\": 2}");
  EXPECT_THROW(read_checkpoint(checkpoint), data::InputError);
  data::write_file_atomically(checkpoint / "state.json", "{\"format_version\": 1}");
  EXPECT_THROW(read_checkpoint(checkpoint), data::InputError);
}

}  // namespace
}  // namespace clover::train
