// What all commands have in common, and the commands without a test file of their own.
#include "tests/infer/commands/commands.h"

#include <unistd.h>

#include "tests/infer/requests/tiny_tokenizer.h"
#include "tests/support/damaged_target.h"

namespace clover {
namespace {

TEST_F(Commands, PrintHelpWithAnExample) {
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
                                {"--max-tokens", "7", "--seed", "18446744073709551615", "--stop", "a b",
                                 "[END]", "###", "--stop=\n\"x\"", "--print-config"}));
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

// It is read twice, and a pipe gives its settings once: they were ignored without a word.
TEST_F(Commands, SettingsAreNotTakenFromAPipe) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string settings = "max-tokens = 3\n", pipe = "/proc/self/fd/" + std::to_string(ends[0]);
  ASSERT_EQ(::write(ends[1], settings.data(), settings.size()), std::ssize(settings));
  ::close(ends[1]);
  const Ran ran = run({"batch", "--config", pipe, "--print-config"});
  EXPECT_EQ(ran.code, 2) << ran.out;
  EXPECT_THAT(ran.err, HasSubstr("expected a regular file"));
  ::close(ends[0]);
}

TEST_F(Commands, DefaultListsReadBackToo) {
  const Ran printed = run({"verify-equal", "--target", target, "--input", "x", "--print-config"});
  EXPECT_THAT(printed.out, HasSubstr("budgets = [1, 4, 16]"));
  const Ran again =
      run({"verify-equal", "--config", folder.write("job.toml", printed.out), "--print-config"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.out, printed.out);
}

TEST_F(Commands, ReportsNeverOverwriteTheirInputs) {
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
  expect_refusal(generate + " --end-tokens none --system s", "expected a chat template, found none");
}

TEST_F(Commands, NanLogitsAreErrors) {
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
  for (const char* value : {"-1", "-1GB", "9223372036854775808", "9000000000GB", "much"}) {
    const Ran refused = run(batch(input, out, {"--kv-memory", value}));
    EXPECT_EQ(refused.code, 2) << value;
    EXPECT_THAT(refused.err, HasSubstr("expected a size in bytes")) << value;
  }
  EXPECT_THAT(run(batch(input, out, {"--kv-memory", "2 GB", "--print-config"})).out,
              HasSubstr("kv-memory = 2147483648"));
}

TEST_F(Commands, AMessageNamesTheFileThatHoldsAWrongValue) {
  const std::string file = folder.write("job.toml", "max-tokens = \"many\"\n");
  const Ran from_file = run({"generate", "--target", target, "--prompt", "p", "--config", file});
  EXPECT_EQ(from_file.code, 2);
  EXPECT_THAT(from_file.err, HasSubstr(file + ": --max-tokens"));
  const Ran typed =
      run({"generate", "--target", target, "--prompt", "p", "--config", file, "--max-tokens", "few"});
  EXPECT_THAT(typed.err, HasSubstr("found \"few\""));
  EXPECT_THAT(typed.err, testing::Not(HasSubstr(file)));
  EXPECT_THAT(run({"generate", "--target", target, "--prompt", "p", "--temperature", "nan"}).err,
              HasSubstr("temperature: expected a number >= 0, found nan"));
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

TEST_F(Commands, APromptThatIsNoUtf8IsRefused) {
  const Ran refused = run({"generate", "--target", target, "--prompt", "\xff\xfe"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--prompt: expected UTF-8"));
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
  // An empty system message is one, and not what the template says where there is none.
  const auto prompt_tokens = [&](std::vector<std::string> more) {
    more.insert(more.begin(), arguments.begin(), arguments.end());
    const std::string said = run(more).err;
    return std::stoi(said.substr(said.find("prompt ") + 7));
  };
  EXPECT_LT(prompt_tokens({"--system", ""}), prompt_tokens({}));
  EXPECT_THAT(
      run({"generate", "--target", target, "--raw", "--max-tokens", "4", "--prompt", "1, 2, 3, 4,"}).out,
      HasSubstr("5"));
}

TEST_F(Commands, AutoKeepsWhatItMeasuredInTheUsersCacheFolder) {
  const std::vector<std::string> ask = {"generate", "--target", target,         "--heads", heads(),
                                        "--prompt", "Hi",       "--max-tokens", "4"};
  const auto files_in = [](const std::filesystem::path& cache) {
    const std::filesystem::path costs = cache / "clover" / "costs";
    return std::filesystem::exists(costs) ? std::distance(std::filesystem::directory_iterator(costs), {}) : 0;
  };
  const std::filesystem::path cache = folder / "cache";
  const test::Variable here("XDG_CACHE_HOME", cache);
  const Ran first = run(ask);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(files_in(cache), 1);
  EXPECT_EQ(run(ask).out, first.out);
  EXPECT_EQ(files_in(cache), 1);
  std::vector<std::string> in_fp32 = ask;
  in_fp32.insert(in_fp32.end(), {"--dtype", "float32"});
  EXPECT_EQ(run(in_fp32).code, 0);
  EXPECT_EQ(files_in(cache), 2);

  const test::Variable no_folder("XDG_CACHE_HOME", folder.write("file", ""));  // nor one that could be made
  const Ran without = run(ask);
  EXPECT_EQ(without.code, 0) << without.err;
  EXPECT_EQ(without.out, first.out);

  const test::Variable empty("XDG_CACHE_HOME", ""), home("HOME", folder / "home");
  EXPECT_EQ(run(ask).code, 0);
  EXPECT_EQ(files_in(folder / "home" / ".cache"), 1);
}

TEST_F(Commands, InspectEndsOnASignalAsEveryCommand) {
  int code = 0;  // 1015 where the signal came before the command looked out for it, 0 where it was done
  for (int wait = 20; wait < 5000 && code != 75; wait += wait / 4) {
    Process process(folder, {program, "inspect", target, "--verify"});
    std::this_thread::sleep_for(std::chrono::milliseconds(wait));
    process.signal(SIGTERM);
    code = process.wait();
    EXPECT_THAT(code, testing::AnyOf(0, 75, 1000 + SIGTERM));
  }
  EXPECT_EQ(code, 75);
}

TEST_F(Commands, InspectDescribesAndVerifies) {
  const std::string report = (folder / "about.json").string();
  const Ran of_model = run({"inspect", target, "--verify", "--json", report});
  EXPECT_EQ(of_model.code, 0) << of_model.err;
  const json about = json::parse(test::text_of(report));
  EXPECT_EQ(about["parameters"], 134515008);
  EXPECT_EQ(about["config"]["layers"], 30);
  EXPECT_EQ(about["fingerprint"].get<std::string>().size(), 33u);
  const std::string folder_of_heads = heads();
  const Ran of_heads = run({"inspect", folder_of_heads});
  const Ran printed = run({"inspect", folder_of_heads, "--print-config"});
  EXPECT_EQ(run({"inspect", "--config", folder.write("inspect.toml", printed.out)}).out, of_heads.out);
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
