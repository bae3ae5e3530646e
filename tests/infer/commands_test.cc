// The commands of clover-infer as a user meets them: the real program, the real SmolLM2, real signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "infer/batch_output.h"
#include "model/heads_checkpoint.h"
#include "run_program.h"
#include "tests/infer/tiny_tokenizer.h"
#include "tests/support/damaged_target.h"
#include "tests/support/temporary_folder.h"

namespace clover {
namespace {

using nlohmann::json;
using test::Process;
using test::Ran;
using testing::HasSubstr;

const std::string program = CLOVER_BINARY_DIR "/bin/clover-infer";
const std::string target = CLOVER_SOURCE_DIR "/models/SmolLM2-135M-Instruct";

class Commands : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::filesystem::exists(target + "/model.safetensors"))
        << target << " is missing: run scripts/setup, which puts the example model there.";
  }

  Ran run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program);
    return test::run_program(folder, arguments);
  }

  // Exit code 2, one sentence that holds `message`, and nothing written.
  void expect_refusal(const std::string& command, const std::string& message) {
    std::istringstream words(command);
    std::vector<std::string> arguments;
    for (std::string word; words >> word;) arguments.push_back(word);
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.code, 2) << command;
    EXPECT_THAT(ran.err, HasSubstr(message)) << command;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_FALSE(std::filesystem::exists(out)) << command;
    EXPECT_FALSE(std::filesystem::exists(out + ".run.json")) << command;
  }

  std::vector<std::string> batch(const std::string& input, const std::string& output,
                                 const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"batch", "--target", target, "--input", input, "--output", output};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  // Answers by line number; every line once.
  static std::map<int64_t, json> by_line(const std::string& file) {
    std::map<int64_t, json> records;
    for (const json& record : test::records_of(file)) {
      EXPECT_TRUE(records.emplace(infer::line_of_record(record), record).second) << record;
    }
    return records;
  }

  std::string questions(int count) {
    std::string lines;
    for (int i = 0; i < count; ++i) {
      lines += json{{"id", "q" + std::to_string(i)},
                    {"category", i % 2 ? "odd" : "even"},
                    {"prompt", "Question " + std::to_string(i) + ": what is " + std::to_string(i * 7) +
                                   " plus " + std::to_string(i + 5) + "? Answer:"}}
                   .dump() +
               "\n";
    }
    return folder.write("questions.jsonl", lines);
  }

  // Untrained heads: poor guesses, which is all that a test of sameness wants.
  std::string heads() {
    const auto model = model::Target::load(target, at::kBFloat16);
    const auto drafter = model::make_drafter("clover", json::object(), model->view(), {}, true, 1);
    const std::string path = (folder / "heads").string();
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 24; ++i) ids.push_back(1000 + 37 * i);
    drafter->freeze(at::kBFloat16);
    const json golden = model::make_golden(*drafter, *model, ids);
    drafter->thaw();
    model::save_heads(path, *drafter, *model,
                      {{"tokenizer", json::object()},
                       {"chat_template", json::object()},
                       {"training", json::object()},
                       {"golden", golden}},
                      at::kBFloat16);
    return path;
  }

  test::TemporaryFolder folder;
  std::string out = (folder / "out.jsonl").string();
};

TEST_F(Commands, TeachThemselves) {
  EXPECT_EQ(run({"--help"}).code, 0);
  EXPECT_EQ(run({}).code, 2);
  for (const char* command : {"generate", "batch", "bench", "tokenize", "verify-equal", "inspect"}) {
    const Ran help = run({command, "--help"});
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_THAT(help.out, HasSubstr("--target")) << command;
    EXPECT_THAT(help.out, HasSubstr("Example")) << command;
  }
}

TEST_F(Commands, RefuseBadSettingsInOneSentenceAndWriteNothing) {
  const std::string input = questions(1), folder_name = folder.path().string();
  const std::string config = folder.write("bad.toml", "max-tokens = 4\nno-such-key = 1\n");
  const std::string batch_with = "batch --target " + target + " --input " + input + " --output " + out + " ";
  expect_refusal("nonsense", "nonsense");
  expect_refusal("batch --input " + input + " --output " + out, "--target");
  expect_refusal(batch_with + "--no-such-option", "--no-such-option");
  expect_refusal(batch_with + "--max-tokens many", "--max-tokens");
  expect_refusal(batch_with + "--max-tokens 0", "max_tokens");
  expect_refusal(batch_with + "--temperature -1", "temperature");
  expect_refusal(batch_with + "--draft beam", "beam");
  expect_refusal(batch_with + "--draft clover", "--heads");
  expect_refusal(batch_with + "--suffix perhaps", "--suffix");
  expect_refusal(batch_with + "--device cuda", "cuda");
  expect_refusal(batch_with + "--dtype int8", "int8");
  expect_refusal(batch_with + "--template none-such", "none-such");
  expect_refusal(batch_with + "--heads " + folder_name + "/no-heads", "no-heads");
  expect_refusal(batch_with + "--config " + config, "no-such-key");
  expect_refusal(batch_with + "--config " + folder_name + "/absent.toml", "absent.toml");
  expect_refusal(
      "batch --target " + target + " --output " + out + " --input " + folder_name + "/absent.jsonl",
      "absent.jsonl");
  expect_refusal("batch --target " + target + " --output " + input + " --input " + input, "--input");
  expect_refusal("batch --target " + folder_name + " --output " + out + " --input " + input, "config.json");
  expect_refusal("bench --target " + target, "--input");
  expect_refusal("inspect " + folder_name, "config.json");
  expect_refusal("generate --target " + target + " --raw --system s --prompt p", "--system");
  expect_refusal("generate --target " + input + " --prompt p", "is no folder");
}

TEST_F(Commands, PrintSettingsThatReadBack) {
  const std::string input = questions(1);
  const Ran printed = run(batch(input, out,
                                {"--max-tokens", "7", "--seed", "3", "--stop", "a b", "[END]", "###",
                                 "--stop=\n\"x\"", "--print-config"}));
  ASSERT_EQ(printed.code, 0) << printed.err;
  const Ran again = run({"batch", "--config", folder.write("job.toml", printed.out), "--print-config"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.out, printed.out);
  EXPECT_THAT(printed.out, HasSubstr("max-tokens = 7"));
  EXPECT_THAT(printed.out, HasSubstr(R"(stop = ["a b", "[END]", "###", "\n\"x\""])"));
  const Ran changed =
      run({"batch", "--config", (folder / "job.toml").string(), "--max-tokens", "8", "--print-config"});
  EXPECT_THAT(changed.out, HasSubstr("max-tokens = 8"));  // the command line wins
}

TEST_F(Commands, DefaultListsReadBackToo) {
  const Ran printed = run({"verify-equal", "--target", target, "--input", "x", "--print-config"});
  EXPECT_THAT(printed.out, HasSubstr("budgets = [1, 4, 16]"));
  const Ran again =
      run({"verify-equal", "--config", folder.write("job.toml", printed.out), "--print-config"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.out, printed.out);
}

TEST_F(Commands, ReportsNeverReplaceWhatTheyReportOn) {
  const std::string input = questions(1), before = test::text_of(input);
  for (const std::string command : {"bench", "verify-equal", "batch"}) {
    std::vector<std::string> words = {command, "--target", target, "--input", input, "--json", input};
    if (command == "batch") words.insert(words.end(), {"--output", out});
    EXPECT_EQ(run(words).code, 2) << command;
    EXPECT_EQ(test::text_of(input), before) << command;
  }
  const std::filesystem::path config = folder / "model/config.json";
  std::filesystem::create_directory(folder / "model");
  std::filesystem::copy_file(std::filesystem::path(target) / "config.json", config);
  EXPECT_THAT(run({"inspect", (folder / "model").string(), "--json", config.string()}).err,
              HasSubstr("expected another file than"));
  EXPECT_THAT(test::text_of(config), HasSubstr("hidden_size"));
}

TEST_F(Commands, LongMessagesLoseTheirMiddle) {
  folder.write("config.json",
               json{{"model_type", "llama"}, {"hidden_size", std::string(100'000, 'x')}}.dump());
  test::write_tiny_tokenizer(folder);
  const Ran refused = run({"generate", "--target", folder.path().string(), "--prompt", "p"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_LT(refused.err.size(), 5000u);
  EXPECT_THAT(refused.err,
              testing::AllOf(HasSubstr("hidden_size"), HasSubstr("expected a positive integer")));
}

TEST_F(Commands, ASystemMessageNeedsAChatTemplate) {
  const test::TemporaryFolder bare;
  test::write_tiny_tokenizer(bare);
  test::write_damaged_target(bare, 'Z');
  const std::string generate = "generate --target " + bare.path().string() + " --max-tokens 3 --prompt ABC";
  std::istringstream words(generate);
  EXPECT_EQ(run({std::istream_iterator<std::string>(words), {}}).code, 0);
  expect_refusal(generate + " --system s", "expected a chat template, found none");
}

TEST_F(Commands, AnswersOutOfNoNumbersAreErrors) {
  const test::TemporaryFolder damaged;
  test::write_tiny_tokenizer(damaged);
  test::write_damaged_target(damaged, 'Z');
  const std::vector<std::string> generate = {"generate", "--target",     damaged.path().string(),
                                             "--raw",    "--max-tokens", "3"};
  const auto prompted = [&](const std::string& prompt) {
    std::vector<std::string> arguments = generate;
    arguments.insert(arguments.end(), {"--prompt", prompt});
    return run(arguments);
  };
  EXPECT_EQ(prompted("ABC").code, 0);
  const Ran failed = prompted("AZ");
  EXPECT_EQ(failed.code, 2);
  EXPECT_THAT(failed.err, HasSubstr("not numbers"));
  const std::string input = folder.write("two.jsonl", "{\"prompt\": \"AZ\"}\n{\"prompt\": \"ABC\"}\n");
  const Ran some = run(
      {"batch", "--target", damaged.path().string(), "--input", input, "--output", out, "--max-tokens", "3"});
  EXPECT_EQ(some.code, 3) << some.err;
  const auto records = by_line(out);
  EXPECT_THAT(records.at(1)["error"]["message"].get<std::string>(), HasSubstr("not numbers"));
  EXPECT_EQ(records.at(2)["token_ids"].size(), 3u);
}

TEST_F(Commands, NumbersBeyondTheirTypeAreRefused) {
  const std::string input = questions(1);
  for (const auto& [name, value] : {std::pair{"--seed", "18446744073709551616"},
                                    {"--seed", "-1"},
                                    {"--max-tokens", "99999999999999999999"},
                                    {"--top-k", "1e3"}}) {
    const Ran refused = run(batch(input, out, {name, value}));
    EXPECT_EQ(refused.code, 2) << name;
    EXPECT_THAT(refused.err, HasSubstr("expected a whole number up to")) << name;
  }
}

TEST_F(Commands, BatchNeverOverwritesWhatIsNotItsOwn) {
  const std::string input = questions(1);
  const std::string notes = folder.write("notes.txt", "remember\n");
  const Ran refused = run(batch(input, out, {"--stats", notes}));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("notes.txt"));
  EXPECT_EQ(test::text_of(notes), "remember\n");
  EXPECT_EQ(run(batch(input, out, {"--json", out + ".run.json"})).code, 2);
  EXPECT_EQ(run(batch(input, out, {"--json", (folder / "absent/report.json").string()})).code, 2);
  EXPECT_FALSE(std::filesystem::exists(out));
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

TEST_F(Commands, TokenizeShowsTextAndIds) {
  const std::string input =
      folder.write("texts.jsonl", R"({"id": "e", "text": ""})"
                                  "\n"
                                  R"({"text": "Hello world"})"
                                  "\n"
                                  R"({"id": 3, "messages": [{"role": "user", "content": "Hi"}]})"
                                  "\n"
                                  R"({"text": 5})"
                                  "\n"
                                  R"({"prompt": "<|im_end|>"})"
                                  "\n");
  const Ran ran = run({"tokenize", "--target", target, "--input", input});
  EXPECT_EQ(ran.code, 3) << ran.err;
  folder.write("tokens.jsonl", ran.out);
  const auto records = test::records_of(folder / "tokens.jsonl");
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(records[0], (json{{"id", "e"}, {"text", ""}, {"token_ids", json::array()}}));
  EXPECT_EQ(records[1]["id"], 2);
  EXPECT_EQ(records[1]["token_ids"], json({19556, 905}));  // as the reference tokenizer has it
  EXPECT_THAT(records[2]["text"].get<std::string>(),
              HasSubstr("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_EQ(records[2]["token_ids"][0], 1);
  EXPECT_EQ(records[3]["line"], 4);
  EXPECT_EQ(records[4]["token_ids"], json::array({2}));  // special tokens are parsed
}

TEST_F(Commands, GenerateAnswersOnStdout) {
  const std::vector<std::string> arguments = {
      "generate", "--target", target, "--max-tokens", "8", "--prompt", "What is the capital of France?"};
  const Ran whole = run(arguments);
  EXPECT_EQ(whole.code, 0) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("Paris"));
  EXPECT_THAT(whole.err, HasSubstr("tokens/s"));
  std::vector<std::string> streaming = arguments;
  streaming.push_back("--stream");
  EXPECT_EQ(run(streaming).out, whole.out);
  EXPECT_THAT(
      run({"generate", "--target", target, "--raw", "--max-tokens", "4", "--prompt", "1, 2, 3, 4,"}).out,
      HasSubstr("5"));
}

TEST_F(Commands, BenchMeasuresAgainstPlainDecoding) {
  const std::string input = questions(4), report = (folder / "bench.json").string();
  const Ran ran = run({"bench", "--target", target, "--heads", heads(), "--input", input, "--batch-sizes",
                       "1,4", "--max-tokens", "8", "--draft", "off,clover,chain", "--budgets", "2,4",
                       "--rounds", "2", "--json", report});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const json figures = json::parse(test::text_of(report));
  EXPECT_TRUE(figures.contains("machine") && figures.contains("build"));
  std::multiset<std::string> found;
  for (const json& entry : figures["configurations"]) {
    found.insert(entry["draft"].get<std::string>() + " " + entry["budget"].dump() + " " +
                 entry["batch_size"].dump());
    EXPECT_EQ(entry["differs_from_off"], 0);
    EXPECT_EQ(entry["requests"], 4);
    EXPECT_EQ(entry["rounds"].size(), 2u);
    EXPECT_GT(entry["tokens_per_second"].get<double>(), 0);
    EXPECT_GE(entry["tokens_per_step"].get<double>(), 1);
    EXPECT_EQ(entry["by_category"]["odd"]["requests"], 2);
    for (const char* name :
         {"heads", "policy", "temperature", "tokens", "passes", "seconds", "prefill_seconds",
          "calibration_seconds", "accepted_histogram", "time_share", "peak_memory"}) {
      EXPECT_TRUE(entry.contains(name)) << name;
    }
    if (entry["draft"] == "off") {
      EXPECT_EQ(entry["ratio_to_off"], 1);
      EXPECT_EQ(entry["tokens_per_step"], 1);
    }
  }
  EXPECT_EQ(found, (std::multiset<std::string>{"off 0 1", "clover 2 1", "clover 4 1", "chain null 1",
                                               "off 0 4", "clover 2 4", "clover 4 4", "chain null 4"}));
}

TEST_F(Commands, BenchMeasuresStepsByRows) {
  const std::string report = (folder / "rows.json").string();
  const Ran ran = run(
      {"bench", "--target", target, "--rows", "1,5", "--context", "100", "--rounds", "2", "--json", report});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const json entries = json::parse(test::text_of(report))["configurations"];
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[1]["rows"], 5);
  EXPECT_EQ(entries[1]["context"], 100);
  EXPECT_GT(entries[1]["seconds"].get<double>(), 0);
}

TEST_F(Commands, BenchMeasuresAShapeWithoutItsWeights) {
  const std::string shapes = CLOVER_SOURCE_DIR "/configs/targets/";
  const std::string report = (folder / "steps.json").string();
  const std::string real = folder.write("real.json", R"({"configurations": [
      {"draft": "clover", "kind": "clover", "budget": 2, "accepted_histogram": [1, 1, 2]}]})");
  const std::vector<std::string> steps = {"bench",
                                          "--random-weights",
                                          shapes + "smollm2-135m.json",
                                          "--batch-sizes",
                                          "2",
                                          "--context",
                                          "64",
                                          "--rounds",
                                          "1",
                                          "--random-heads",
                                          "clover,medusa",
                                          "--draft-vocab",
                                          "512",
                                          "--assume-acceptance",
                                          real,
                                          "--json",
                                          report};
  EXPECT_THAT(run(steps).err, HasSubstr("add one of them, plus 1 for the root, to --rows"));
  std::vector<std::string> with_rows = steps;
  with_rows.insert(with_rows.end(), {"--rows", "1,3"});
  const Ran ran = run(with_rows);
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("A projection"));
  const json figures = json::parse(test::text_of(report));
  EXPECT_EQ(figures["configurations"].size(), 4u);
  EXPECT_EQ(figures["configurations"][3]["draft_vocab"], 512);
  const json& configurations = figures["configurations"];
  const double seconds =
      configurations[1]["seconds"].get<double>() + configurations[2]["seconds"].get<double>();
  EXPECT_EQ(figures["projection"].size(), 2u);  // plain and clover: nothing is known of medusa
  EXPECT_NEAR(figures["projection"][1]["tokens_per_second"].get<double>(), 2 * 2.25 / seconds, 1e-6);
  json huge = json::parse(test::text_of(shapes + "llama-3.1-70b.json"));
  huge["num_hidden_layers"] = 100'000'000;
  expect_refusal("bench --random-weights " + folder.write("huge.json", huge.dump()).string(),
                 "GB are free on cpu");
}

TEST_F(Commands, VerifyEqualFindsNoDifference) {
  const Ran ran = run({"verify-equal", "--target", target, "--heads", heads(), "--input", questions(3),
                       "--max-tokens", "8", "--budgets", "4", "--batch-sizes", "1,3"});
  EXPECT_EQ(ran.code, 0) << ran.err << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("equal: 3 requests, 10 settings"));
}

TEST_F(Commands, InspectDescribesAndVerifies) {
  const std::string report = (folder / "about.json").string();
  const Ran of_model = run({"inspect", target, "--verify", "--json", report});
  EXPECT_EQ(of_model.code, 0) << of_model.err;
  const json about = json::parse(test::text_of(report));
  EXPECT_EQ(about["parameters"], 134515008);
  EXPECT_EQ(about["config"]["layers"], 30);
  EXPECT_EQ(about["fingerprint"].get<std::string>().size(), 16u);
  const std::string folder_of_heads = heads();
  const Ran of_heads = run({"inspect", folder_of_heads});
  EXPECT_EQ(of_heads.code, 0) << of_heads.err;
  EXPECT_THAT(of_heads.out, HasSubstr("kind: clover"));
  EXPECT_EQ(run({"inspect", folder_of_heads, "--verify"}).code, 2);  // without the target
  const Ran verified = run({"inspect", folder_of_heads, "--verify", "--target", target});
  EXPECT_EQ(verified.code, 0) << verified.err;
  // A heads folder whose recorded guesses are others is found out.
  const std::string config_file = folder_of_heads + "/config.json";
  json config = json::parse(test::text_of(config_file));
  for (auto& [name, value] : config["golden"].items()) {
    if (name.find("guess") == std::string::npos) continue;
    for (json& id : value) id = (id.get<int64_t>() + 1) % 49152;
  }
  std::ofstream(config_file) << config.dump();
  EXPECT_EQ(run({"inspect", folder_of_heads, "--verify", "--target", target}).code, 1);
}

}  // namespace
}  // namespace clover
