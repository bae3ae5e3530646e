// Any number of processes computes the same bits, and a run can be resumed with another number of processes.
// Tested with real processes.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/train/commands/fit_process.h"

namespace clover::train {
namespace {

using testing::Each, testing::HasSubstr;

class FitRanksProcessTest : public FitProcessTest {
 protected:
  // An epoch has five batches.  A batch has four micro-batches; the last one has two and a half.
  void SetUp() override { write_counting_store(folder_ / "store", 37); }

  static std::string free_port() {
    const int number = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(number, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::getsockname(number, reinterpret_cast<sockaddr*>(&address), &size), 0);
    ::close(number);
    return std::to_string(ntohs(address.sin_port));
  }

  std::vector<std::string> own(const fs::path& output) const {
    return command(output, {"--batch", "8", "--micro-batch", "2", "--steps", "24", "--resume", "auto"});
  }

  /// Starts `count` processes with the arguments `words`; `changed` adds arguments for one of them.
  std::vector<pid_t> start_all(int count, const std::vector<std::string>& words,
                               const std::map<int, std::vector<std::string>>& changed = {}) const {
    const std::string port = free_port();
    std::vector<pid_t> processes;
    for (int rank = 0; rank < count; ++rank) {
      std::vector<std::string> all{"/usr/bin/env", "RANK=" + std::to_string(rank),
                                   "WORLD_SIZE=" + std::to_string(count), "MASTER_PORT=" + port};
      all.insert(all.end(), words.begin(), words.end());
      if (const auto more = changed.find(rank); more != changed.end())
        all.insert(all.end(), more->second.begin(), more->second.end());
      processes.push_back(start(all));
    }
    return processes;
  }
  static std::vector<int> wait_all(const std::vector<pid_t>& processes) {
    std::vector<int> codes;
    for (const pid_t process : processes) codes.push_back(wait(process));
    return codes;
  }
  static void wait_for_steps(const fs::path& output, int64_t steps) {
    for (int tick = 0; tick < 60000 && logged_steps(output) < steps; ++tick)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  /// From the log, for each step: number, loss, gradient norm and the first head's metrics.
  static std::vector<std::string> logged_lines(const fs::path& output) {
    std::vector<std::string> steps;
    std::istringstream text(data::read_file(output / "log.jsonl"));
    for (std::string line; std::getline(text, line);) {
      const auto json = nlohmann::json::parse(line);
      steps.push_back(nlohmann::json{json["step"], json["loss"], json["grad_norm"], json["answer_tokens"],
                                     json["rows"], json["heads"]}
                          .dump());
    }
    return steps;
  }
};

TEST_F(FitRanksProcessTest, AnyNumberOfProcessesComputesTheSameBits) {
  const fs::path alone = folder_ / "alone";
  ASSERT_EQ(run(own(alone)), 0) << messages();
  for (const int count : {2, 4}) {
    const fs::path output = folder_ / std::to_string(count);
    ASSERT_THAT(wait_all(start_all(count, own(output))), Each(0)) << messages();
    EXPECT_TRUE(weights(output) == weights(alone)) << count;
    EXPECT_EQ(logged_lines(output), logged_lines(alone)) << count;
    EXPECT_EQ(logged_lines(output).size(), 24u);
  }
}

TEST_F(FitRanksProcessTest, SelfFeedingAndDrawnLabelsAreTheSameBitsForAnyNumber) {
  const auto drawn = [&](const fs::path& output) {
    auto words = own(output);
    words.insert(words.end(), {"--self-feed", "0.8", "--distill-samples", "2"});
    return words;
  };
  const fs::path alone = folder_ / "alone", two = folder_ / "two";
  ASSERT_EQ(run(drawn(alone)), 0) << messages();
  ASSERT_THAT(wait_all(start_all(2, drawn(two))), Each(0)) << messages();
  EXPECT_TRUE(weights(two) == weights(alone));
  EXPECT_EQ(logged_lines(two), logged_lines(alone));
}

TEST_F(FitRanksProcessTest, SamplesWithoutALabelAreLeftOutByAll) {
  ASSERT_EQ(run(own(folder_ / "without")), 0) << messages();
  write_counting_store(folder_ / "store", 37, /*useless=*/9);
  const fs::path output = folder_ / "with";
  ASSERT_THAT(wait_all(start_all(4, own(output))), Each(0)) << messages();
  EXPECT_TRUE(weights(output) == weights(folder_ / "without"));
  EXPECT_EQ(logged_lines(output), logged_lines(folder_ / "without"));
  const std::string said = messages();
  const std::string once = "9 of 46 samples teach the heads nothing";
  EXPECT_THAT(said, HasSubstr(once));
  EXPECT_EQ(said.find(once), said.rfind(once));
}

TEST_F(FitRanksProcessTest, KilledAndContinuedByAnotherNumberItEndsWithTheSameBits) {
  const fs::path whole = folder_ / "whole", broken = folder_ / "broken";
  ASSERT_EQ(run(own(whole)), 0) << messages();
  int64_t steps = 0;
  for (const int count : {2, 4, 2}) {
    const std::vector<pid_t> processes = start_all(count, own(broken));
    wait_for_steps(broken, steps += 6);
    for (const pid_t process : processes) ::kill(process, SIGKILL);
    ASSERT_THAT(wait_all(processes), Each(-SIGKILL)) << messages();
  }
  ASSERT_EQ(run(own(broken)), 0) << messages();
  EXPECT_TRUE(weights(broken) == weights(whole));
  EXPECT_EQ(logged_lines(broken), logged_lines(whole));
}

TEST_F(FitRanksProcessTest, ASignalToOneStopsAllWithACheckpoint) {
  const fs::path whole = folder_ / "whole", broken = folder_ / "broken";
  ASSERT_EQ(run(own(whole)), 0) << messages();
  const std::vector<pid_t> processes = start_all(2, own(broken));
  wait_for_steps(broken, 5);
  ::kill(processes[1], SIGTERM);
  EXPECT_THAT(wait_all(processes), Each(75)) << messages();
  EXPECT_THAT(messages(), HasSubstr("interrupted after step"));
  ASSERT_THAT(wait_all(start_all(2, own(broken))), Each(0)) << messages();
  EXPECT_TRUE(weights(broken) == weights(whole));
}

TEST_F(FitRanksProcessTest, WithoutRankZeroTheOthersEnd) {
  const fs::path output = folder_ / "run";
  const std::vector<pid_t> processes = start_all(2, own(output));
  wait_for_steps(output, 4);
  ::kill(processes[0], SIGKILL);
  EXPECT_THAT(wait_all(processes), testing::ElementsAre(-SIGKILL, 1)) << messages();
  EXPECT_THAT(messages(), HasSubstr("rank 1 of 2 lost the others"));
  EXPECT_THAT(messages(), testing::Not(HasSubstr("Exception raised from")));  // LibTorch's own account
}

TEST_F(FitRanksProcessTest, RankZeroEndsWithACheckpointWhenToldSoAfterAnotherIsGone) {
  const fs::path whole = folder_ / "whole", broken = folder_ / "broken";
  const std::vector<pid_t> processes = start_all(2, own(broken));
  wait_for_steps(broken, 4);
  ::kill(processes[1], SIGKILL);
  ::kill(processes[0], SIGTERM);
  ASSERT_EQ(run(own(whole)), 0) << messages();  // while rank 0 waits for the other, 20 s
  EXPECT_THAT(wait_all(processes), testing::ElementsAre(75, -SIGKILL)) << messages();
  ASSERT_EQ(run(own(broken)), 0) << messages();
  EXPECT_TRUE(weights(broken) == weights(whole));
}

// As when the disk is full or memory runs out in one of them.
TEST_F(FitRanksProcessTest, WhenRankZeroFailsTheOthersEnd) {
  const fs::path output = folder_ / "run";
  const std::vector<pid_t> processes = start_all(2, own(output));
  wait_for_steps(output, 4);
  fs::remove_all(output / "checkpoints");
  data::write_file_atomically(output / "checkpoints", "not a folder");
  EXPECT_THAT(wait_all(processes), Each(1)) << messages();
}

TEST_F(FitRanksProcessTest, WhatOneCannotBeginNoneBegins) {
  const fs::path output = folder_ / "run";
  EXPECT_THAT(wait_all(start_all(2, own(output), {{1, {"--init-heads", folder_ / "nowhere"}}})), Each(2));
  EXPECT_THAT(messages(), HasSubstr("Another of the processes could not begin"));
  EXPECT_THAT(wait_all(start_all(2, own(output), {{1, {"--seed", "2"}}})), Each(2));
  EXPECT_THAT(messages(), HasSubstr("The settings (--threads and --compute-dtype among them) of rank 1"));
  EXPECT_THAT(wait_all(start_all(3, own(output))), Each(2));
  EXPECT_THAT(messages(), HasSubstr("Expected 1, 2, 4, 8 ... processes"));
  EXPECT_THAT(wait_all(start_all(8, own(output))), Each(2));
  EXPECT_THAT(messages(), HasSubstr("8 processes: expected at most 4, one for each micro-batch"));
  EXPECT_FALSE(fs::exists(output));
}

}  // namespace
}  // namespace clover::train
