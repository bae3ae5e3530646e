// Samples without a label are left out of training.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/train/commands/fit_process.h"
#include "train/run/checkpoint.h"

namespace clover::train {
namespace {

using testing::Each, testing::HasSubstr;

class OrderProcessTest : public FitProcessTest {
 protected:
  static std::vector<nlohmann::json> steps_of(const fs::path& output) {
    std::vector<nlohmann::json> steps;
    std::istringstream text(data::read_file(output / "log.jsonl"));
    for (std::string line; std::getline(text, line);) steps.push_back(nlohmann::json::parse(line));
    return steps;
  }
  std::vector<std::string> one_by_one(const fs::path& output, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"--batch", "1", "--micro-batch", "1", "--steps", "30"});
    return command(output, more);
  }
};

TEST_F(OrderProcessTest, SamplesWithoutALabelChangeNothing) {
  ASSERT_EQ(run(one_by_one(folder_ / "without")), 0) << messages();
  EXPECT_THAT(messages(), testing::Not(HasSubstr("teach the heads nothing")));
  write_counting_store(folder_ / "store", 20, /*useless=*/8);
  ASSERT_EQ(run(one_by_one(folder_ / "with")), 0) << messages();
  EXPECT_THAT(messages(), HasSubstr("8 of 28 samples teach the heads nothing and are left out"));
  EXPECT_TRUE(weights(folder_ / "with") == weights(folder_ / "without"));
  for (const auto& step : steps_of(folder_ / "with")) EXPECT_GT(step["loss"].get<double>(), 0) << step;
  // An epoch consists of the samples with labels.
  ASSERT_EQ(run(command(folder_ / "epochs",
                        {"--batch", "1", "--micro-batch", "1", "--steps", "0", "--epochs", "1"})),
            0);
  EXPECT_EQ(logged_steps(folder_ / "epochs"), 20);
}

// The prompt has five tokens, so of 6 tokens only the last is a label, and of 5 none.
TEST_F(OrderProcessTest, SamplesWhoseLabelsMaxLengthCutsAwayAreLeftOut) {
  data::TokenStoreWriter writer(folder_ / "store", 0.0, 130);
  for (int64_t i = 0; i < 20; ++i) {
    data::TrainingSample sample;
    for (int64_t t = 0; t < 16; ++t) {
      sample.ids.push_back((7 * i + t) % 130);
      sample.supervised.push_back(t >= (i % 2 == 0 ? 4 : 9));
    }
    writer.add(sample);
  }
  writer.finish({});
  ASSERT_EQ(run(one_by_one(folder_ / "run", {"--max-length", "9", "--draft-vocab", "0"})), 0) << messages();
  EXPECT_THAT(messages(), HasSubstr("10 of 20 samples teach the heads nothing and are left out"));
  for (const auto& step : steps_of(folder_ / "run")) {
    EXPECT_GT(step["loss"].get<double>(), 0) << step;
    EXPECT_GT(step["heads"][0]["labels"].get<int64_t>(), 0) << step;
  }
  EXPECT_EQ(run(one_by_one(folder_ / "none", {"--max-length", "4"})), 2);
  EXPECT_THAT(messages(), HasSubstr("no sample with a label the heads could learn"));
  EXPECT_FALSE(fs::exists(folder_ / "none"));
}

TEST_F(OrderProcessTest, SamplesWhoseLabelsTheHeadsCannotSayAreLeftOut) {
  data::TokenStoreWriter writer(folder_ / "store", 0.0, 130);
  for (int64_t i = 0; i < 20; ++i) writer.add({{1, 2, 3, 4, 5, 6, 7}, {0, 0, 0, 1, 1, 1, 1}, ""});
  writer.add({{1, 2, 3, 50, 51, 52}, {0, 0, 0, 1, 1, 1}, ""});
  writer.finish({});
  ASSERT_EQ(run(one_by_one(folder_ / "run", {"--draft-vocab", "4"})), 0) << messages();
  EXPECT_THAT(messages(), HasSubstr("1 of 21 samples teach the heads nothing and are left out"));
  for (const auto& step : steps_of(folder_ / "run")) EXPECT_GT(step["loss"].get<double>(), 0) << step;
}

TEST_F(OrderProcessTest, KilledAndContinuedTheyStayLeftOut) {
  write_counting_store(folder_ / "store", 20, /*useless=*/8);
  const fs::path whole = folder_ / "whole", broken = folder_ / "broken", file = folder_ / "features";
  ASSERT_EQ(run(one_by_one(whole)), 0) << messages();
  ASSERT_EQ(interrupt_after(one_by_one(broken), broken, 10, SIGKILL), -SIGKILL);
  ASSERT_EQ(run(one_by_one(broken, {"--resume", "auto"})), 0) << messages();
  EXPECT_TRUE(weights(broken) == weights(whole));
  // The feature file is written without them, too.
  ASSERT_EQ(run(one_by_one(folder_ / "first", {"--feature-file", file})), 0) << messages();
  EXPECT_TRUE(fs::exists(file));
  ASSERT_EQ(run(one_by_one(folder_ / "second", {"--feature-file", file})), 0) << messages();
  EXPECT_TRUE(weights(folder_ / "second") == weights(whole));
}

// Older checkpoints do not record the number of samples: they used all of them.
TEST_F(OrderProcessTest, AnOlderRunGoesOnInItsOrderAndItsEmptyStepsMoveNothing) {
  write_counting_store(folder_ / "store", 20, /*useless=*/8);
  const fs::path output = folder_ / "run", again = folder_ / "again";
  ASSERT_EQ(interrupt_after(one_by_one(output), output, 4, SIGKILL), -SIGKILL);
  const Checkpoints checkpoints(output);
  for (const int64_t step : checkpoints.steps()) {
    const fs::path file = checkpoints.at_step(step) / "state.json";
    auto state = data::read_json(file);
    ASSERT_EQ(state.at("identity").erase("samples"), 1u);
    data::write_file_atomically(file, state.dump());
  }
  fs::copy(output, again, fs::copy_options::recursive);
  const std::vector<std::string> often{"--resume",           "auto", "--checkpoint-every", "1",
                                       "--keep-checkpoints", "0"};
  ASSERT_EQ(run(one_by_one(output, often)), 0) << messages();
  EXPECT_THAT(messages(), HasSubstr("8 of 28 samples teach the heads nothing:"));
  int64_t empty = 0;
  for (const auto& step : steps_of(output)) {
    const int64_t number = step["step"];
    if (step["answer_tokens"] != 0 || number < 5) continue;
    ++empty;
    EXPECT_TRUE(data::read_file(checkpoints.at_step(number) / "state.safetensors") ==
                data::read_file(checkpoints.at_step(number - 1) / "state.safetensors"))
        << number;
  }
  EXPECT_GT(empty, 0);
  interrupt_after(one_by_one(again, {"--resume", "auto"}), again, 15, SIGKILL);
  ASSERT_EQ(run(one_by_one(again, {"--resume", "auto"})), 0) << messages();
  EXPECT_TRUE(weights(output) == weights(again));
}

TEST_F(OrderProcessTest, ARunOverOtherSamplesIsRefused) {
  const fs::path output = folder_ / "run";
  ASSERT_EQ(run(one_by_one(output)), 0) << messages();
  const fs::path file = Checkpoints(output).at_step(30) / "state.json";
  auto state = data::read_json(file);
  ASSERT_EQ(state["identity"]["samples"], 20);
  state["identity"]["samples"] = 19;
  data::write_file_atomically(file, state.dump());
  EXPECT_EQ(run(one_by_one(output, {"--resume", "auto"})), 2);
  EXPECT_THAT(messages(), HasSubstr("belongs to a run over 19 samples, and 20"));
}

}  // namespace
}  // namespace clover::train
