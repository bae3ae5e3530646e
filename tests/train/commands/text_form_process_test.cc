// A target whose tokenizer or chat template changed after `prepare`.
#include <functional>

#include "data/training/token_store.h"
#include "tests/train/commands/commands_process.h"

namespace clover::train {
namespace {

using testing::AllOf, testing::Not;

constexpr const char* own_template =
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}"
    "{% endif %}\n{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}";

class TextFormProcessTest : public CommandsProcessTest {
 protected:
  /// A store prepared with the folder's own template.
  std::string own_store() const {
    const std::string store = folder_ / "store";
    EXPECT_EQ(run("prepare", {"--input", records(), "--output", store, "--holdout", "0.3"}).code, 3);
    return store;
  }
  void edit(const std::string& file, const std::function<void(json&)>& change) const {
    json content = data::read_json(target_ / file);
    change(content);
    target_.write(file, content.dump());
  }
  std::vector<std::string> fit(const std::string& store, std::vector<std::string> more = {}) const {
    std::vector<std::string> words{"--data",    store,    "--output",       folder_ / "run",
                                   "--kind",    "medusa", "--steps",        "2",
                                   "--batch",   "4",      "--eval-prompts", "0",
                                   "--threads", "1",      "--draft-vocab",  "0"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  /// Expects that every command which reads the store refuses it in one sentence and writes nothing.
  void expect_refusals(const std::string& store, const std::string& untrained,
                       const std::string& part) const {
    const std::string message = "store was prepared with another " + part;
    expect_refusal("fit", fit(store), message);
    expect_refusal("fit", fit(store, {"--resume", "auto"}), message);
    expect_refusal("fit", fit(store, {"--feature-file", folder_ / "features"}), message);
    expect_refusal("fit", fit(store, {"--dry-run"}), message);
    EXPECT_FALSE(fs::exists(folder_ / "run"));
    EXPECT_FALSE(fs::exists(folder_ / "features"));
    const test::Ran ran = run("eval", {"--heads", untrained, "--input", store, "--max-tokens", "8"});
    EXPECT_EQ(ran.code, 2) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(message));
  }
};

TEST_F(TextFormProcessTest, AnotherTokenizerIsRefusedBeforeTheFirstStep) {
  const std::string store = prepared(), whole = data::read_file(target_ / "tokenizer.json");
  const std::vector<std::function<void(json&)>> changes{
      [](json& tokenizer) {
        tokenizer["model"]["vocab"].erase("~");
        for (int i = 0; i < 2; ++i) tokenizer["added_tokens"][i]["id"] = 127 + i;
      },
      [](json& tokenizer) { tokenizer["added_tokens"][1]["special"] = false; },
      [](json& tokenizer) { tokenizer["added_tokens"][1]["content"] = "<|end|>"; },
      [](json& tokenizer) { std::swap(tokenizer["model"]["vocab"]["a"], tokenizer["model"]["vocab"]["b"]); },
  };
  for (const auto& change : changes) {
    edit("tokenizer.json", change);
    expect_refusals(store, heads(), "tokenizer");
    fs::remove_all(folder_ / "heads");
    expect_refusal("init",
                   {"--kind", "medusa", "--draft-vocab", "50", "--data", store, "--output", folder_ / "no"},
                   "another tokenizer");
    target_.write("tokenizer.json", whole);
  }
  fs::remove(target_ / "tokenizer.json");
  expect_refusal("fit", fit(store), "another tokenizer");
  target_.write("tokenizer.json", whole);
  ASSERT_EQ(run("fit", fit(store)).code, 0);
  edit("tokenizer.json", changes[0]);
  expect_refusal("fit", fit(store, {"--resume", "auto"}), "another tokenizer");
}

TEST_F(TextFormProcessTest, AnotherTemplateIsRefusedBeforeTheFirstStep) {
  target_.write("chat_template.jinja", own_template);
  const std::string store = own_store(), untrained = heads();
  target_.write("chat_template.jinja", std::string(own_template) + "!");
  expect_refusals(store, untrained, "chat template");
  fs::remove(target_ / "chat_template.jinja");
  expect_refusals(store, untrained, "chat template");
  target_.write("chat_template.jinja", own_template);
  edit("tokenizer_config.json", [](json& config) { config["eos_token"] = "<|im_start|>"; });
  expect_refusals(store, untrained, "special token in its chat template");
}

TEST_F(TextFormProcessTest, WhatIsWrittenOtherwiseAndMeansTheSameIsTaken) {
  target_.write("chat_template.jinja", own_template);
  const std::string store = own_store();
  // As a newer version of a library would save it.
  fs::remove(target_ / "chat_template.jinja");
  edit("tokenizer_config.json", [](json& config) {
    config["chat_template"] = own_template;
    config["eos_token"] = {{"content", "<|im_end|>"}, {"special", true}};
    config["pad_token"] = "<|im_end|>";
    config["model_max_length"] = 77;
  });
  target_.write("tokenizer.json", data::read_json(target_ / "tokenizer.json").dump(4));
  EXPECT_EQ(run("fit", fit(store)).code, 0);
  EXPECT_EQ(run("eval", {"--heads", folder_ / "run/best", "--input", store, "--max-tokens", "8"}).code, 0);
}

// The output of a format that is named does not depend on the folder's own template.
TEST_F(TextFormProcessTest, ATemplateThatWasNamedDoesNotChangeWithTheFolder) {
  const std::string store = prepared();
  target_.write("chat_template.jinja", own_template);
  EXPECT_EQ(run("fit", fit(store)).code, 0);
}

// Commit f7a012d recorded this for records() with --template chatml.  For a folder whose own template equals
// a format it recorded the format's name.
TEST_F(TextFormProcessTest, OlderStoresAreCheckedByWhatTheyRecord) {
  const std::string store = prepared();
  const auto record = [&](const json& tokenizer, const json& chat_template) {
    json about = data::read_json(fs::path(store) / "store.json");
    about.erase("tokenizer");
    about.erase("chat_template");
    if (!tokenizer.is_null()) about["tokenizer"] = tokenizer;
    if (!chat_template.is_null()) about["chat_template"] = chat_template;
    data::write_file_atomically(fs::path(store) / "store.json", about.dump());
    fs::remove_all(folder_ / "run");
  };
  const json tokenizer{{"hash", "bda7c271c5cc7d75"}},
      chatml{{"name", "chatml"}, {"hash", "e15a5679ce39d48a"}};
  record(tokenizer, chatml);
  EXPECT_EQ(run("fit", fit(store)).code, 0);
  record(nullptr, nullptr);
  EXPECT_EQ(run("fit", fit(store)).code, 0);
  record({{"hash", "0123456789abcdef"}}, chatml);
  expect_refusal("fit", fit(store), "another tokenizer than");
  record(tokenizer, {{"name", "chatml"}, {"hash", "0123456789abcdef"}});
  expect_refusal("fit", fit(store), "another chat template than");
  record(tokenizer, {{"name", "jinja"}, {"hash", "56d43689d3730aa3"}});
  expect_refusal("fit", fit(store), "another chat template than");
  target_.write("chat_template.jinja", own_template);
  EXPECT_EQ(run("fit", fit(store)).code, 0);
}

}  // namespace
}  // namespace clover::train
