// A target with the same weights and another config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/target/target.h"
#include "tests/train/commands/fit_process.h"
#include "train/run/checkpoint.h"

namespace clover::train {
namespace {

class OtherTargetProcessTest : public FitProcessTest {
 protected:
  /// A command with the target replaced by one that has another rope_theta.
  std::vector<std::string> on_other_target(std::vector<std::string> words) const {
    const fs::path other = folder_ / "other-target";
    if (!fs::exists(other)) {
      fs::copy(tiny_target(), other, fs::copy_options::recursive);
      auto config = data::read_json(other / "config.json");
      config["rope_theta"] = 777.0;
      data::write_file_atomically(other / "config.json", config.dump());
    }
    std::ranges::replace(words, tiny_target().string(), other.string());
    return words;
  }
};

TEST_F(OtherTargetProcessTest, NeitherContinuesARunNorReadsItsFeaturesOrHeads) {
  const fs::path run_folder = folder_ / "run", file = folder_ / "features.safetensors";
  ASSERT_EQ(run(command(run_folder, {"--feature-file", file})), 0) << messages();
  const auto refused = [&](const std::vector<std::string>& words, const char* why) {
    EXPECT_EQ(run(on_other_target(words)), 2) << why;
    EXPECT_THAT(messages(), testing::HasSubstr(why));
  };
  const fs::path checkpoint = run_folder / "checkpoints" / "step-000039";
  refused(command(run_folder, {"--resume", checkpoint}), "another config.json");
  refused(command(folder_ / "next", {"--feature-file", file}), "features of another target");
  refused(command(folder_ / "next", {"--init-heads", run_folder / "last", "--draft-vocab", "100"}),
          "theta is 10000.0, the given target's is 777.0");
  refused(
      {program(), "export", "--run", run_folder, "--target", tiny_target(), "--output", folder_ / "heads"},
      "is not the target of this run");
  EXPECT_FALSE(fs::exists(folder_ / "next"));
}

// The oldest runs and feature files record only the sampled fingerprint of the weights.
TEST_F(OtherTargetProcessTest, WhatWasRecordedAtFirstIsStillTaken) {
  const fs::path run_folder = folder_ / "run", file = folder_ / "features.safetensors";
  ASSERT_EQ(run(command(run_folder, {"--feature-file", file})), 0) << messages();
  const std::string recorded = model::Target::load(tiny_target(), at::kBFloat16)->sampled_fingerprint();
  const fs::path state = run_folder / "checkpoints" / "step-000039" / "state.json";
  auto saved = data::read_json(state);
  saved["identity"]["target"] = recorded;
  data::write_file_atomically(state, saved.dump());
  EXPECT_EQ(run(command(run_folder, {"--resume", state.parent_path()})), 0) << messages();
  data::NamedTensors tensors;
  std::map<std::string, std::string> metadata;
  {
    const auto reader = data::SafetensorsReader::open(file);
    metadata = reader.metadata();
    for (const std::string& name : reader.names()) tensors.emplace_back(name, reader.read(name).clone());
  }
  metadata["target"] = recorded;
  metadata.erase("checksum");  // it had none then
  data::write_safetensors(file, tensors, metadata);
  EXPECT_EQ(run(command(folder_ / "next", {"--feature-file", file})), 0) << messages();
}

}  // namespace
}  // namespace clover::train
