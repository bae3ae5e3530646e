// A run that is killed at any moment and resumed ends with the same bits; tested with real processes.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/train/commands/fit_process.h"
#include "train/run/checkpoint.h"

namespace clover::train {
namespace {

TEST_F(FitProcessTest, KilledAgainAndAgainItEndsWithTheSameBits) {
  const fs::path whole = folder_ / "whole", broken = folder_ / "broken";
  ASSERT_EQ(run(command(whole)), 0) << messages();
  int kills = 0;
  int code = -1;
  for (const int64_t after : {1, 5, 11, 12, 20, 31}) {
    code = interrupt_after(command(broken, {"--resume", "auto"}), broken, after, SIGKILL);
    kills += code == -SIGKILL;
  }
  EXPECT_GE(kills, 3);
  ASSERT_EQ(run(command(broken, {"--resume", "auto"})), 0) << messages();
  EXPECT_TRUE(weights(whole) == weights(broken));

  // The log is that of an uninterrupted run: every step once, in order, with the same losses.
  const auto lines = [](const fs::path& output) {
    std::vector<std::pair<int64_t, double>> steps;
    std::istringstream text(data::read_file(output / "log.jsonl"));
    for (std::string line; std::getline(text, line);) {
      const auto json = nlohmann::json::parse(line);
      steps.emplace_back(json["step"], json["loss"]);
    }
    return steps;
  };
  EXPECT_EQ(lines(broken), lines(whole));
  EXPECT_EQ(lines(whole).size(), 40u);
  EXPECT_LT(lines(whole).back().second, 0.7 * lines(whole).front().second);  // and the loss has fallen
}

TEST_F(FitProcessTest, ALossOfSeveralTermsIsLoggedByTermAndContinuedToTheSameBits) {
  const std::vector<std::string> loss{"--loss", "soft-labels + 0.1 smooth-l1", "--self-feed", "0.5"};
  auto again = loss;
  again.insert(again.end(), {"--resume", "auto"});
  const fs::path whole = folder_ / "whole", broken = folder_ / "broken";
  ASSERT_EQ(run(command(whole, loss)), 0) << messages();
  EXPECT_EQ(interrupt_after(command(broken, again), broken, 20, SIGKILL), -SIGKILL);
  EXPECT_EQ(run(command(broken, {"--resume", "auto"})), 2);
  EXPECT_THAT(messages(), testing::AnyOf(testing::HasSubstr("Setting --loss is \"cross-entropy\""),
                                         testing::HasSubstr("Setting --self-feed is 0")));
  ASSERT_EQ(run(command(broken, again)), 0) << messages();
  EXPECT_TRUE(weights(whole) == weights(broken));
  EXPECT_THAT(data::read_file(whole / "run.toml"),
              testing::HasSubstr("loss = \"soft-labels + 0.1 smooth-l1\""));

  std::istringstream text(data::read_file(whole / "log.jsonl"));
  std::string line;
  ASSERT_TRUE(std::getline(text, line));
  const auto json = nlohmann::json::parse(line);
  const double soft = json["terms"]["soft-labels"], distance = json["terms"]["smooth-l1"];
  EXPECT_GT(distance, 0);
  EXPECT_NEAR(json["loss"].get<double>(), soft + 0.1 * distance, 1e-4);
  EXPECT_EQ(json["heads"][0]["terms"].size(), 2u);
}

TEST_F(FitProcessTest, FeaturesOnDiskServeEveryLoss) {
  const fs::path file = folder_ / "features.safetensors";
  const std::vector<std::string> soft{"--loss", "soft-labels", "--steps", "8"};
  auto with_file = soft;
  with_file.insert(with_file.end(), {"--feature-file", file});
  ASSERT_EQ(run(command(folder_ / "hard", {"--feature-file", file, "--steps", "20"})), 0) << messages();
  ASSERT_TRUE(fs::exists(file));
  ASSERT_EQ(run(command(folder_ / "soft", soft)), 0) << messages();
  ASSERT_EQ(run(command(folder_ / "soft-file", with_file)), 0) << messages();
  EXPECT_TRUE(weights(folder_ / "soft-file") == weights(folder_ / "soft"));

  auto metadata = data::SafetensorsReader::open(file).metadata();
  metadata.erase("checksum");
  data::NamedTensors tensors;
  for (const char* name : {"pre_norm", "post_norm", "rows"})
    tensors.emplace_back(name, data::SafetensorsReader::open(file).read(name).clone());
  tensors[1].second += 1;  // another distribution of the target, so the file is really used
  data::write_safetensors(file, tensors, metadata);
  ASSERT_EQ(run(command(folder_ / "moved", with_file)), 0) << messages();
  EXPECT_FALSE(weights(folder_ / "moved") == weights(folder_ / "soft"));
}

TEST_F(FitProcessTest, ALossThatTheHeadsCannotHaveIsRefusedBeforeAnythingIsWritten) {
  EXPECT_EQ(run(command(folder_ / "run", {"--kind", "medusa", "--self-feed", "0.5"})), 2);
  EXPECT_THAT(messages(), testing::HasSubstr("heads of kind medusa read no tokens"));
  EXPECT_EQ(run(command(folder_ / "run", {"--kind", "redrafter", "--loss", "smooth-l1"})), 2);
  EXPECT_THAT(messages(), testing::HasSubstr("heads of kind redrafter have outputs of"));
  EXPECT_EQ(run(command(folder_ / "run", {"--loss", "soft"})), 2);
  EXPECT_THAT(messages(), testing::HasSubstr("\"soft\" is no term"));
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

TEST_F(FitProcessTest, SigtermLeavesACheckpointAndCode75) {
  const fs::path whole = folder_ / "whole", broken = folder_ / "broken";
  ASSERT_EQ(run(command(whole)), 0) << messages();
  const int code = interrupt_after(as_users_start_it(command(broken)), broken, 4, SIGTERM);
  // A second signal of the same kind ends the process at once, so either answer is right; both must continue.
  EXPECT_THAT(code, testing::AnyOf(75, -SIGTERM)) << messages();
  ASSERT_EQ(run(command(broken, {"--resume", "auto"})), 0) << messages();
  EXPECT_TRUE(weights(whole) == weights(broken));
}

TEST_F(FitProcessTest, WatchingARunChangesNoWeight) {
  const fs::path often = folder_ / "often", seldom = folder_ / "seldom";
  ASSERT_EQ(run(as_users_start_it(command(often, {"--feature-cache", "0"}))), 0) << messages();
  ASSERT_EQ(run(command(seldom, {"--checkpoint-every", "100", "--feature-cache", "1000000000"})), 0)
      << messages();
  EXPECT_TRUE(weights(often) == weights(seldom));
}

TEST_F(FitProcessTest, FeaturesOnDiskServeLaterRunsAndChangeNoWeight) {
  const fs::path plain = folder_ / "plain", first = folder_ / "first", second = folder_ / "second";
  const fs::path file = folder_ / "features.safetensors";
  write_counting_store(folder_ / "store", 20, /*useless=*/4);
  const std::vector<std::string> with_file{"--feature-file", file};
  ASSERT_EQ(run(command(plain)), 0) << messages();
  ASSERT_EQ(run(command(first, with_file)), 0) << messages();
  ASSERT_TRUE(fs::exists(file));
  ASSERT_EQ(run(command(second, with_file)), 0) << messages();
  EXPECT_TRUE(weights(first) == weights(plain));
  EXPECT_TRUE(weights(second) == weights(plain));

  EXPECT_EQ(run(command(folder_ / "other", {"--feature-file", file, "--max-length", "7"})), 2);
  EXPECT_THAT(messages(), testing::HasSubstr("features of another max-length (2048, not 7)"));
  auto metadata = data::SafetensorsReader::open(file).metadata();
  ASSERT_EQ(metadata.erase("checksum"), 1u);
  data::NamedTensors tensors;
  for (const char* name : {"pre_norm", "post_norm", "rows"})
    tensors.emplace_back(name, data::SafetensorsReader::open(file).read(name).clone());
  tensors[0].second += 1;  // other features give other heads, so the file is really used
  data::write_safetensors(file, tensors, metadata);
  ASSERT_EQ(run(command(folder_ / "moved", with_file)), 0) << messages();
  EXPECT_FALSE(weights(folder_ / "moved") == weights(plain));
  tensors[2].second += 1;
  data::write_safetensors(file, tensors, metadata);
  EXPECT_EQ(run(command(folder_ / "other", with_file)), 2);
  EXPECT_FALSE(fs::exists(folder_ / "other"));
}

TEST_F(FitProcessTest, HeadsThatTapLayersHaveFeaturesOfTheirOwnOnDisk) {
  const fs::path plain = folder_ / "plain", first = folder_ / "first", second = folder_ / "second";
  const fs::path file = folder_ / "features.safetensors", fewer = folder_ / "fewer.safetensors";
  const auto tapping = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--tap-layers", "1"});
    return more;
  };
  ASSERT_EQ(run(command(plain, tapping({}))), 0) << messages();
  ASSERT_EQ(run(command(first, tapping({"--feature-file", file}))), 0) << messages();
  ASSERT_EQ(run(command(second, tapping({"--feature-file", file}))), 0) << messages();
  EXPECT_TRUE(weights(first) == weights(plain));
  EXPECT_TRUE(weights(second) == weights(plain));
  EXPECT_GT(data::SafetensorsReader::open(second / "last").read("tap.weight").abs().max().item<float>(), 0);

  // Heads that tap no layer can use the same file, but not the other way round.
  ASSERT_EQ(run(command(folder_ / "none", {"--feature-file", file})), 0) << messages();
  ASSERT_EQ(run(command(folder_ / "without", {"--feature-file", fewer})), 0) << messages();
  EXPECT_TRUE(weights(folder_ / "none") == weights(folder_ / "without"));
  EXPECT_EQ(run(command(folder_ / "other", tapping({"--feature-file", fewer}))), 2);
  EXPECT_THAT(messages(), testing::HasSubstr("holds features of no lower layers (not 1)"));
  data::NamedTensors tensors;
  const auto reader = data::SafetensorsReader::open(file);
  for (const std::string& name : reader.names()) tensors.emplace_back(name, reader.read(name).clone());
  auto about = reader.metadata();
  about.at("layers") = "2";
  about.erase("checksum");
  data::write_safetensors(file, tensors, about);
  EXPECT_EQ(run(command(folder_ / "other", tapping({"--feature-file", file}))), 2);
  EXPECT_THAT(messages(), testing::HasSubstr("holds features of layers 2 (not 1)"));

  ASSERT_EQ(run({program(), "fit", "--config", plain / "run.toml", "--output", folder_ / "again"}), 0)
      << messages();
  EXPECT_TRUE(weights(folder_ / "again") == weights(plain));
}

// For example --tap-layers.
TEST_F(FitProcessTest, ARunOfWhenASettingWasNotKnownYetGoesOn) {
  const fs::path whole = folder_ / "whole", run_folder = folder_ / "run", heads = folder_ / "heads";
  ASSERT_EQ(run(command(whole)), 0) << messages();
  ASSERT_EQ(interrupt_after(command(run_folder), run_folder, 10, SIGKILL), -SIGKILL);
  const Checkpoints checkpoints(run_folder);
  for (const int64_t step : checkpoints.steps()) {
    const fs::path file = checkpoints.at_step(step) / "state.json";
    auto state = data::read_json(file);
    ASSERT_EQ(state.at("identity").at("settings").erase("tap-layers"), 1u);
    data::write_file_atomically(file, state.dump());
  }
  ASSERT_EQ(run({program(), "export", "--run", run_folder, "--target", tiny_target(), "--output", heads}), 0)
      << messages();
  ASSERT_EQ(run(command(run_folder, {"--resume", "auto"})), 0) << messages();
  EXPECT_TRUE(weights(run_folder) == weights(whole));
}

TEST_F(FitProcessTest, RefusesWhatWouldSpoilARun) {
  const fs::path output = folder_ / "run";
  ASSERT_EQ(run(command(output, {"--keep-checkpoints", "2"})), 0) << messages();
  EXPECT_EQ(std::distance(fs::directory_iterator(output / "checkpoints"), fs::directory_iterator()), 2);
  EXPECT_EQ(run(command(output)), 2);  // holds a run
  EXPECT_THAT(messages(), testing::HasSubstr("already holds a run"));
  const fs::path foreign = folder_ / "foreign";
  fs::create_directories(foreign / "best");
  EXPECT_EQ(run(command(foreign)), 2);
  EXPECT_THAT(messages(), testing::HasSubstr("holds best, which is of no run"));
  fs::copy(output, foreign, fs::copy_options::recursive);
  EXPECT_EQ(run(command(foreign, {"--resume", output / "checkpoints/step-000039"})), 2);
  EXPECT_THAT(messages(), testing::HasSubstr("is none of its checkpoints"));
  EXPECT_EQ(run(command(folder_ / "store")), 2);
  EXPECT_THAT(messages(), testing::HasSubstr("holds the training data"));
  EXPECT_EQ(run(command(output, {"--resume", "auto", "--lr", "0.5"})), 2);
  EXPECT_THAT(messages(), testing::HasSubstr("Setting --lr is 0.5"));
  EXPECT_EQ(run(command(folder_ / "other", {"--heads", "0"})), 2);
  EXPECT_EQ(run(command(folder_ / "other", {"--device", "cuda"})), 2);
  EXPECT_FALSE(fs::exists(folder_ / "other"));
  data::write_file_atomically(folder_ / "bad.toml", "heads = 3\nno-such-key = 1\n");
  EXPECT_EQ(run(command(folder_ / "other", {"--config", folder_ / "bad.toml"})), 2);
  EXPECT_THAT(messages(), testing::HasSubstr("no-such-key"));
}

TEST_F(FitProcessTest, ADamagedCheckpointIsRefusedBeforeAnythingIsWritten) {
  const fs::path output = folder_ / "run", checkpoint = output / "checkpoints/step-000006";
  ASSERT_EQ(run(command(output, {"--steps", "6", "--checkpoint-every", "3"})), 0) << messages();
  const fs::path state = checkpoint / "state.safetensors", map = checkpoint / "token_map.safetensors";
  const std::string name = data::SafetensorsReader::open(state).names().front();
  const std::vector<std::function<void()>> damages{
      [&] { fs::remove(state); },
      [&] { fs::resize_file(state, fs::file_size(state) / 2); },
      [&] {
        change_tensor(state, name, [](const at::Tensor& tensor) { return tensor.unsqueeze(0).clone(); });
      },
      [&] { change_tensor(state, name, [](const at::Tensor& tensor) { return tensor.to(at::kDouble); }); },
      [&] { fs::remove(map); },
      [&] { change_tensor(map, "token_map", [](const at::Tensor& ids) { return ids.to(at::kInt); }); },
      [&] { change_tensor(map, "token_map", [](const at::Tensor& ids) { return ids + 100; }); },
  };
  const auto whole = contents_of(checkpoint);
  for (size_t i = 0; i < damages.size(); ++i) {
    damages[i]();
    const auto before = contents_of(output);
    EXPECT_EQ(run(command(output, {"--steps", "6", "--resume", "auto"})), 2) << i << messages();
    EXPECT_THAT(messages(), testing::HasSubstr("--resume " + (output / "checkpoints/step-000003").string()));
    EXPECT_TRUE(contents_of(output) == before) << i;
    for (const auto& [file, bytes] : whole) data::write_file_atomically(file, bytes);
  }
  EXPECT_EQ(run(command(output, {"--steps", "6", "--resume", "auto"})), 0) << messages();
}

// Resuming from an older checkpoint, as the error about a damaged one advises; such a run can be interrupted,
// too.
TEST_F(FitProcessTest, ContinuedFromAnOlderCheckpointARunLeavesTheLaterOnesBehind) {
  const fs::path whole = folder_ / "whole", output = folder_ / "run";
  const fs::path older = output / "checkpoints/step-000009";
  ASSERT_EQ(run(command(whole)), 0) << messages();
  ASSERT_EQ(run(command(output, {"--keep-checkpoints", "0"})), 0) << messages();
  fs::resize_file(output / "checkpoints/step-000040/state.safetensors", 100);
  const std::string log = data::read_file(output / "log.jsonl");
  size_t nine_lines = 0;  // bytes of the log that are kept
  for (int line = 0; line < 9; ++line) nine_lines = log.find('\n', nine_lines) + 1;
  data::write_file_atomically(output / "log.jsonl", log.substr(0, nine_lines));
  data::write_file_atomically(output / ".log.jsonl.1.0.tmp", "of a killed process");
  ASSERT_EQ(
      interrupt_after(command(output, {"--resume", older, "--keep-checkpoints", "2"}), output, 12, SIGKILL),
      -SIGKILL);
  EXPECT_LT(Checkpoints(output).steps().back(), 40);
  ASSERT_EQ(run(command(output, {"--resume", "auto", "--keep-checkpoints", "2"})), 0) << messages();
  EXPECT_EQ(logged_steps(output), 40);
  EXPECT_TRUE(weights(output) == weights(whole));
  EXPECT_FALSE(fs::exists(output / ".log.jsonl.1.0.tmp"));
  ASSERT_EQ(run({program(), "export", "--run", output, "--output", folder_ / "heads"}), 0) << messages();
  EXPECT_TRUE(data::read_file(folder_ / "heads/model.safetensors").size() > 1000);
}

TEST_F(FitProcessTest, HeadsToBeginWithDecideTheVocabulary) {
  const fs::path first = folder_ / "first", second = folder_ / "second";
  ASSERT_EQ(run(command(first)), 0) << messages();
  const auto from_first = command(second, {"--init-heads", first / "best", "--draft-vocab", "50"});
  ASSERT_EQ(run(from_first), 0) << messages();
  const auto config = data::read_json(second / "best/config.json");
  EXPECT_EQ(config["training"]["settings"]["draft-vocab"], 100);
  EXPECT_EQ(data::SafetensorsReader::open(second / "best").read("token_map").numel(), 100);
  auto again = from_first;
  again.insert(again.end(), {"--resume", "auto"});
  EXPECT_EQ(run(again), 0) << messages();
}

TEST_F(FitProcessTest, TensorBoardDropsWhatFollowsTheCheckpointOnly) {
  const fs::path output = folder_ / "run";
  ASSERT_EQ(run(command(output, {"--steps", "6"})), 0) << messages();
  ASSERT_EQ(run(command(output, {"--steps", "6", "--resume", "auto"})), 0) << messages();
  std::string events;
  for (const auto& [file, bytes] : contents_of(output)) {
    if (file.find("tfevents") != std::string::npos) events += bytes;
  }
  // Event: step = 7, session log = START
  EXPECT_THAT(events, testing::HasSubstr("\x10\x07\x3a\x02\x08\x01"));
}

TEST_F(FitProcessTest, RunTomlIsAConfigThatRunsAgain) {
  const fs::path output = folder_ / "run", again = folder_ / "again";
  ASSERT_EQ(run(command(output, {"--seed", "18446744073709551615"})), 0)
      << messages();  // no integer of TOML's
  ASSERT_EQ(run({program(), "fit", "--config", output / "run.toml", "--output", again}), 0) << messages();
  EXPECT_TRUE(weights(output) == weights(again));
}

TEST_F(FitProcessTest, DryRunWritesNothing) {
  const fs::path output = folder_ / "run";
  ASSERT_EQ(run(command(output, {"--dry-run"})), 0) << messages();
  EXPECT_FALSE(fs::exists(output));
  // The whole output is a --config file.
  std::istringstream lines(messages());
  bool estimated = false;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.empty() || line[0] == '#' || line.find(" = ") != std::string::npos) << line;
    estimated |= line.find("answer_tokens_per_second") != std::string::npos;
  }
  EXPECT_TRUE(estimated);
}

TEST_F(FitProcessTest, DryRunEstimatesForAModelOfWhichOnlyTheShapeIsKnown) {
  const fs::path output = folder_ / "run", shape = folder_ / "shape.json";
  fs::copy_file(fs::path(tiny_target()) / "config.json", shape);
  std::vector<std::string> words = command(output, {"--dry-run", "--random-weights", shape});
  ASSERT_EQ(run(words), 2) << messages();
  EXPECT_THAT(messages(), testing::HasSubstr("without --target"));
  const auto target = std::ranges::find(words, "--target");
  words.erase(target, target + 2);
  ASSERT_EQ(run(words), 0) << messages();
  std::string estimate, config;  // the lines of the estimate, without their "# ", and the others
  std::istringstream lines(messages());
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("# "))
      config += line + "\n";
    else if (line != "# estimate")
      estimate += line.substr(2);
  }
  EXPECT_THAT(config, testing::HasSubstr("target = \"\"\n"));  // a --config for any target
  const auto figures = nlohmann::json::parse(estimate);
  EXPECT_GT(figures["step"]["operations"], 0);
  EXPECT_GT(figures["step"]["operations_per_second"], 0);
  std::erase(words, "--dry-run");
  ASSERT_EQ(run(words), 2) << messages();
  EXPECT_THAT(messages(), testing::HasSubstr("give it with --dry-run"));
  EXPECT_FALSE(fs::exists(output));
}

TEST_F(FitProcessTest, ExportsACheckpointAndMedusaNames) {
  const fs::path output = folder_ / "run";
  ASSERT_EQ(run(command(output, {"--kind", "medusa"})), 0) << messages();
  ASSERT_EQ(run({program(), "export", "--run", output, "--format", "medusa", "--output", folder_ / "medusa"}),
            0)
      << messages();
  EXPECT_EQ(data::read_json(folder_ / "medusa/config.json")["base_model_name_or_path"],
            tiny_target().string());
  const auto reader = data::SafetensorsReader::open(folder_ / "medusa/medusa_lm_head.safetensors");
  EXPECT_THAT(reader.names(),
              testing::ElementsAre("0.0.linear.bias", "0.0.linear.weight", "1.0.linear.bias",
                                   "1.0.linear.weight", "2.0.linear.bias", "2.0.linear.weight"));
  ASSERT_EQ(run({program(), "export", "--run", output, "--dtype", "bfloat16", "--output",
                 (folder_ / "clover").string() + "/"}),
            0)
      << messages();
  EXPECT_EQ(data::read_json(folder_ / "clover/config.json")["training"],
            data::read_json(output / "last/config.json")["training"]);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 6) << "nothing is left beside";
  EXPECT_TRUE(data::read_file(folder_ / "clover/model.safetensors") == weights(output));
  // And back again, except for the draft vocabulary, which that layout does not store.
  ASSERT_EQ(run({program(), "init", "--target", tiny_target(), "--published", folder_ / "medusa", "--output",
                 folder_ / "back"}),
            0)
      << messages();
  const auto back = data::SafetensorsReader::open(folder_ / "back/model.safetensors");
  const auto own = data::SafetensorsReader::open(output / "last/model.safetensors");
  EXPECT_EQ(back.names().size(), 6u);
  for (const std::string& name : back.names())
    EXPECT_TRUE(at::equal(back.read(name), own.read(name))) << name;
  EXPECT_EQ(run({program(), "export", "--run", output, "--step", "12345", "--output", folder_ / "no"}), 2);
  EXPECT_THAT(messages(), testing::HasSubstr("no checkpoint of that step, expected one of: "));
  EXPECT_EQ(run({program(), "export", "--heads", output / "best", "--step", "1", "--output", folder_ / "no"}),
            2);
  EXPECT_THAT(messages(), testing::HasSubstr("--step chooses a checkpoint"));
  EXPECT_EQ(run({program(), "export", "--run", output, "--format", "kestrel", "--output", folder_ / "no"}),
            2);
  EXPECT_THAT(messages(), testing::HasSubstr("medusa"));
}

}  // namespace
}  // namespace clover::train
