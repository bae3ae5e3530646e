// A batch job of several real processes, as torchrun or Slurm would start them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <thread>

#include "infer/batch/batch_output.h"
#include "tests/infer/commands/run_program.h"
#include "tests/support/temporary_folder.h"

namespace clover {
namespace {

using nlohmann::json;
using test::Process;

class RankProcesses : public testing::Test {
 protected:
  std::vector<std::string> command(const std::string& output, std::vector<std::string> environment) {
    std::vector<std::string> arguments = {"/usr/bin/env"};
    arguments.insert(arguments.end(), environment.begin(), environment.end());
    for (const char* argument : {CLOVER_BINARY_DIR "/bin/clover-infer", "batch", "--target",
                                 CLOVER_SOURCE_DIR "/models/SmolLM2-135M-Instruct", "--max-tokens", "12",
                                 "--max-batch", "2", "--threads", "1", "--temperature", "0.7"})
      arguments.push_back(argument);
    for (const std::string& argument : {std::string("--input"), questions, std::string("--output"), output})
      arguments.push_back(argument);
    return arguments;
  }

  /// A process whose output goes to a folder of its own.
  std::unique_ptr<Process> start(int rank, int count) {
    said.push_back(std::make_unique<test::TemporaryFolder>());
    return std::make_unique<Process>(
        *said.back(), command(out, {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(count)}));
  }

  void wait_for_an_answer_of(int rank) const {
    const std::filesystem::path shard = out + ".ranks/rank-" + std::to_string(rank) + ".jsonl";
    for (int tries = 0; tries < 6000 && test::records_of(shard).empty(); ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  static std::map<int64_t, json> ids_by_line(const std::string& file) {
    std::map<int64_t, json> ids;
    for (const json& record : test::records_of(file))
      EXPECT_TRUE(ids.emplace(infer::line_of_record(record), record["token_ids"]).second) << record;
    return ids;
  }

  std::string write_questions() {
    std::string lines;
    for (int i = 0; i < lines_of_input; ++i)
      lines += json{{"prompt",
                     "Question " + std::to_string(i) + ": what is " + std::to_string(i * 7) + " plus 5?"}}
                   .dump() +
               "\n";
    return folder.write("questions.jsonl", lines);
  }

  static constexpr int lines_of_input = 60;
  test::TemporaryFolder folder;
  std::vector<std::unique_ptr<test::TemporaryFolder>> said;
  std::string questions = write_questions();
  std::string out = (folder / "out.jsonl").string();
};

TEST_F(RankProcesses, AnswerAsOneProcessDoesThoughOneIsKilled) {
  const std::string alone = (folder / "alone.jsonl").string();
  ASSERT_EQ(test::run_program(folder, command(alone, {})).code, 0);
  {
    const std::unique_ptr<Process> killed = start(1, 3);
    wait_for_an_answer_of(1);
    killed->signal(SIGSTOP);  // or on a busy machine it might answer all before the others are there
    const std::unique_ptr<Process> stopped = start(0, 3), other = start(2, 3);
    wait_for_an_answer_of(0);
    stopped->signal(SIGTERM);
    EXPECT_EQ(stopped->wait(), 75);
    killed->signal(SIGKILL);
    EXPECT_EQ(killed->wait(), 1000 + SIGKILL);
    other->wait();
  }
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < 2; ++rank) ranks.push_back(start(rank, 2));
  for (auto& rank : ranks) EXPECT_EQ(rank->wait(), 0) << rank->err();
  const std::map<int64_t, json> ids = ids_by_line(out);
  EXPECT_EQ(std::ssize(ids), lines_of_input);
  EXPECT_EQ(ids, ids_by_line(alone));
  EXPECT_FALSE(std::filesystem::exists(out + ".ranks"));
}

}  // namespace
}  // namespace clover
