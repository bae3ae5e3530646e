// What `clover-infer batch` answers, refuses, and survives.
#include <chrono>
#include <fstream>
#include <thread>

#include "tests/infer/commands/commands.h"

namespace clover {
namespace {

TEST_F(Commands, BatchNeverOverwritesWhatIsNotItsOwn) {
  const std::string input = questions(1);
  const std::string notes = folder.write("notes.txt", "remember\n");
  const Ran refused = run(batch(input, out, {"--stats", notes}));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("notes.txt"));
  EXPECT_EQ(test::text_of(notes), "remember\n");
  EXPECT_EQ(run(batch(input, out, {"--json", out + ".run.json"})).code, 2);
  EXPECT_EQ(run(batch(input, out, {"--json", (folder / "absent/report.json").string()})).code, 2);
  // Answers of another job have line numbers, too.
  const std::string others = (folder / "others.jsonl").string();
  ASSERT_EQ(run(batch(questions(2), others, {"--max-tokens", "1"})).code, 0);
  const std::string answers = test::text_of(others), own = (folder / "own.jsonl").string();
  ASSERT_EQ(run(batch(input, own, {"--max-tokens", "1"})).code, 0);
  EXPECT_EQ(run(batch(input, own, {"--max-tokens", "1", "--stats", others})).code, 2);
  EXPECT_EQ(test::text_of(others), answers);
  EXPECT_EQ(run(batch(input, out, {"--stop", "caf\xe9"})).code, 2);
  EXPECT_EQ(run(batch(input, out, {"--stats", (folder / "absent/stats.jsonl").string()})).code, 2);
  // By any other name, too.
  const std::string same = (folder.path() / "." / "out.jsonl").string();
  for (const std::string& name : {same, same + ".run.json"}) {
    EXPECT_EQ(run(batch(input, out, {"--json", name})).code, 2) << name;
    EXPECT_EQ(
        run(batch(std::filesystem::relative(input), std::filesystem::relative(out), {"--stats", name})).code,
        2)
        << name;
  }
  const std::string config = folder.write("job.toml", "max-tokens = 3\n");
  EXPECT_EQ(run(batch(input, out, {"--config", config, "--json", config})).code, 2);
  EXPECT_EQ(test::text_of(config), "max-tokens = 3\n");
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(Commands, BatchRecognisesStatsOfAnotherJob) {
  const std::string one = (folder / "one.jsonl").string(), stats = (folder / "stats.jsonl").string();
  const std::vector<std::string> with_stats{"--max-tokens", "2", "--stats", stats};
  ASSERT_EQ(run(batch(questions(3), one, with_stats)).code, 0);
  const std::string written = test::text_of(stats);
  EXPECT_EQ(run(batch(questions(3), one, with_stats)).code, 0);
  // Also where an answer names no tokens, or a line has a field of the same name.
  const json body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 2}};
  const json openai = {
      {"custom_id", "o"}, {"method", "POST"}, {"url", "/v1/chat/completions"}, {"body", body}};
  const json own_field = {{"prompt", "1, 2,"}, {"response", {{"body", {{"usage", {{"total_tokens", 1}}}}}}}};
  const std::string mixed = folder.write("mixed.jsonl", openai.dump() + "\n" + own_field.dump() + "\n");
  const std::string two = (folder / "two.jsonl").string(), two_stats = (folder / "two-stats.jsonl").string();
  for (int time = 0; time < 2; ++time)
    EXPECT_EQ(run(batch(mixed, two, {"--max-tokens", "2", "--stats", two_stats})).code, 0) << time;
  const std::string other = folder.write("other.jsonl", "{\"prompt\": \"Once upon a time\"}\n");
  ASSERT_EQ(run(batch(other, out, {"--max-tokens", "2"})).code, 0);
  const Ran refused = run(batch(other, out, with_stats));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("stats.jsonl, line 1"));
  EXPECT_THAT(refused.err, HasSubstr("another job"));
  EXPECT_EQ(test::text_of(stats), written);
}

TEST_F(Commands, BatchContinuesALossyJobOnlyWithTheSameHeads) {
  const std::string input = questions(1), folder_of_heads = heads();
  const std::vector<std::string> lossy{"--max-tokens", "2",       "--verify",
                                       "typical",      "--heads", folder_of_heads};
  ASSERT_EQ(run(batch(input, out, lossy)).code, 0);
  const std::string moved = (folder / "moved").string();
  std::filesystem::rename(folder_of_heads, moved);
  std::vector<std::string> by_another_name = lossy;
  by_another_name.back() = moved;
  EXPECT_EQ(run(batch(input, out, by_another_name)).code, 0);
  std::fstream weights(moved + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  weights.seekp(-1, std::ios::end);
  weights.put(1);
  weights.close();
  const Ran refused = run(batch(input, out, by_another_name));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("it was begun with heads"));
}

TEST_F(Commands, BatchRefusesToContinueWithAChangedModelFolder) {
  namespace fs = std::filesystem;
  const fs::path model = folder / "model";
  fs::create_directory(model);
  for (const auto& entry : fs::directory_iterator(target))
    fs::create_symlink(fs::canonical(entry.path()), model / entry.path().filename());
  const auto command = [&] {
    return std::vector<std::string>{"batch",    "--target", model,          "--input", questions(1),
                                    "--output", out,        "--max-tokens", "1"};
  };
  ASSERT_EQ(run(command()).code, 0);
  ASSERT_EQ(run(command()).code, 0);
  json generation = json::parse(test::text_of(fs::path(target) / "generation_config.json"));
  generation["eos_token_id"] = {30, 2};
  fs::remove(model / "generation_config.json");
  folder.write("model/generation_config.json", generation.dump());
  const Ran refused = run(command());
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("end-ids"));
}

TEST_F(Commands, BatchWritesNoMessageIntoTheAnswersWhenStderrIsClosed) {
  const std::string input = questions(2);
  const Ran ran = test::run_program(folder, {"/bin/sh", "-c",
                                             program + " batch --target " + target + " --input " + input +
                                                 " --output " + out + " --max-tokens 2 2>&-"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(by_line(out).size(), 2u);
}

TEST_F(Commands, BatchStopsOnASignalWhileItReadsPrompts) {
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    std::string prompt = std::to_string(i);
    for (int word = 0; word < 400; ++word) prompt += " " + std::to_string(word * (i + 3));
    lines += json{{"prompt", prompt}, {"max_tokens", 2}}.dump() + "\n";
  }
  std::vector<std::string> arguments = batch(folder.write("long.jsonl", lines), out);
  arguments.insert(arguments.begin(), program);
  Process process(folder, arguments);
  for (int wait = 0; wait < 3000 && !std::filesystem::exists(out); ++wait)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  // Nothing shows from outside that it has begun to read; sooner it would stop before the first prompt.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75);
  EXPECT_LT(by_line(out).size(), 4u) << "a prompt is read in seconds, all of them in minutes";
}

TEST_F(Commands, BatchAnswersEveryKindOfLineAndMarksBadOnes) {
  const std::string input = folder.write(
      "mixed.jsonl",
      R"({"prompt": "The capital of France is", "id": "p", "note": "kept", "verify": "so"})"
      "\n"
      R"({"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 3})"
      "\n"
      "not json\n"
      R"({"turns": ["Say one.", "Say two."], "max_tokens": 4})"
      "\n"
      R"({"custom_id": "o", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}})"
      "\n"
      R"({"custom_id": "bad", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "Hi"}], "n": 2}})"
      "\n"
      R"({"prompt": "too long", "max_tokens": 1, "id": "p"})"
      "\n");
  const std::string stats = (folder / "stats.jsonl").string(), report = (folder / "report.json").string();
  const Ran ran =
      run(batch(input, out, {"--max-tokens", "6", "--stats", stats, "--json", report, "--max-batch", "3"}));
  ASSERT_EQ(ran.code, 3) << ran.err;
  const auto records = by_line(out);
  ASSERT_EQ(records.size(), 7u);
  const json& prompt = records.at(1);
  EXPECT_EQ(prompt["note"], "kept");
  EXPECT_FALSE(prompt.contains("verify")) << "it would say how the answer was made";
  EXPECT_EQ(prompt["usage"]["completion_tokens"], prompt["token_ids"].size());
  EXPECT_THAT(prompt["text"].get<std::string>(), HasSubstr("Paris"));
  EXPECT_LE(prompt["token_ids"].size(), 6u);
  EXPECT_EQ(records.at(2)["token_ids"].size(), 3u);
  EXPECT_EQ(records.at(2)["finish_reason"], "length");
  EXPECT_THAT(records.at(3)["error"]["message"].get<std::string>(), HasSubstr("JSON"));
  EXPECT_EQ(records.at(4)["text"].size(), 2u);
  EXPECT_GT(records.at(4)["usage"][1]["prompt_tokens"], records.at(4)["usage"][0]["prompt_tokens"]);
  EXPECT_EQ(records.at(5)["response"]["body"]["usage"]["completion_tokens"], 3);
  EXPECT_TRUE(records.at(6)["response"].is_null());
  EXPECT_THAT(records.at(6)["error"]["message"].get<std::string>(), HasSubstr("n is not supported"));
  EXPECT_THAT(records.at(7)["error"]["message"].get<std::string>(), HasSubstr("earlier line"));
  EXPECT_EQ(test::records_of(stats).size(), 4u);
  const json figures = json::parse(test::text_of(report));
  EXPECT_GT(figures["read_bandwidth"].get<double>(), 1e8);
  EXPECT_EQ(figures["configurations"][0]["requests"], 5);            // a conversation counts its turns
  EXPECT_EQ(run(batch(input, out, {"--max-tokens", "6"})).code, 3);  // the errors are still there
  EXPECT_EQ(by_line(out).size(), 7u);
}

TEST_F(Commands, AnswersDependOnTheRequestAlone) {
  const std::string input = questions(5);
  const std::vector<std::string> sampled = {"--max-tokens", "12", "--temperature", "0.8", "--seed", "4"};
  const auto with = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.end(), sampled.begin(), sampled.end());
    const std::string output = (folder / name).string();
    const Ran ran = run(batch(input, output, more));
    EXPECT_EQ(ran.code, 0) << ran.err;
    std::map<int64_t, json> ids;
    for (const auto& [line, record] : by_line(output)) ids[line] = record["token_ids"];
    return ids;
  };
  const auto alone = with("alone", {"--max-batch", "1", "--draft", "off", "--threads", "1"});
  EXPECT_EQ(alone.size(), 5u);
  EXPECT_EQ(with("together", {"--max-batch", "5"}), alone);
  const std::string folder_of_heads = heads();
  EXPECT_EQ(
      with("clover", {"--heads", folder_of_heads, "--draft", "clover", "--budget", "6", "--max-batch", "3"}),
      alone);
  EXPECT_EQ(with("auto", {"--heads", folder_of_heads, "--max-batch", "4"}), alone);
}

TEST_F(Commands, BatchSurvivesBeingKilledAtAnyMoment) {
  const std::string input = questions(24);
  const std::vector<std::string> settings = {"--max-tokens", "12", "--max-batch", "3"};
  const std::string whole = (folder / "whole.jsonl").string();
  ASSERT_EQ(run(batch(input, whole, settings)).code, 0);
  std::vector<std::string> arguments = batch(input, out, settings);
  arguments.insert(arguments.begin(), program);
  for (const size_t lines : {0u, 4u, 11u}) {  // killed three times, with so many lines written
    Process process(folder, arguments);
    for (int wait = 0; wait < 3000; ++wait) {
      if (std::filesystem::exists(out) && test::text_of(out).size() > lines * 200) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    process.signal(SIGKILL);
    EXPECT_EQ(process.wait(), 1000 + SIGKILL);
    std::ofstream(out, std::ios::app) << R"({"line": 23, "text": "torn)";
  }
  const size_t before = test::records_of(whole).size();
  ASSERT_EQ(run(batch(input, out, settings)).code, 0);
  const auto expected = by_line(whole), found = by_line(out);
  ASSERT_EQ(found.size(), before);
  for (const auto& [line, record] : expected)
    EXPECT_EQ(found.at(line)["token_ids"], record["token_ids"]) << line;
}

TEST_F(Commands, BatchStopsOnASignalAndContinues) {
  const std::string input = questions(30);
  const std::vector<std::string> settings = {"--max-tokens", "24", "--max-batch", "2"};
  std::vector<std::string> arguments = batch(input, out, settings);
  arguments.insert(arguments.begin(), program);
  Process process(folder, arguments);
  for (int wait = 0; wait < 3000 && (!std::filesystem::exists(out) || test::text_of(out).empty()); ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75);
  EXPECT_THAT(process.err(), HasSubstr("same command continues"));
  const size_t done = by_line(out).size();
  EXPECT_GE(done, 1u);
  EXPECT_LT(done, 30u);
  const std::string before = test::text_of(out);
  std::vector<std::string> other = settings;
  other.insert(other.end(), {"--seed", "9"});
  const Ran refused = run(batch(input, out, other));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("seed 0, not 9"));
  EXPECT_EQ(test::text_of(out), before);
  EXPECT_EQ(run(batch(input, out, {"--max-tokens", "24", "--max-batch", "7", "--threads", "1"})).code, 0);
  EXPECT_EQ(by_line(out).size(), 30u);
  EXPECT_EQ(test::text_of(out).substr(0, before.size()), before);
}

}  // namespace
}  // namespace clover
