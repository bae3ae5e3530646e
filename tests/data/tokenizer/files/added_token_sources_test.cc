// Added tokens from every file that may state them, compared with transformers
// (scripts/goldens/make_added_token_goldens.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/files/files.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/support/goldens.h"
#include "tests/support/input_error.h"
#include "tests/support/temporary_folder.h"

namespace clover::data {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Writes the golden tokenizer `base` with the files of a test case instead of its own.
void write_case(const std::filesystem::path& folder, const std::string& base, const json& files) {
  if (std::filesystem::exists(test::golden_tokenizers() / base / "tokenizer.model"))
    write_file_atomically(folder / "tokenizer.model",
                          read_file(test::golden_tokenizers() / base / "tokenizer.model"));
  if (std::filesystem::exists(test::golden_tokenizers() / base / "tokenizer.json")) {
    json tokenizer = read_json(test::golden_tokenizers() / base / "tokenizer.json");
    if (files.contains("added_tokens"))
      for (const json& token : files["added_tokens"]) tokenizer["added_tokens"].push_back(token);
    write_file_atomically(folder / "tokenizer.json", tokenizer.dump());
  }
  for (const auto& [name, content] : files.items())
    if (name != "added_tokens")
      write_file_atomically(folder / name, content.is_string() ? content.get<std::string>() : content.dump());
}

class SourcesOfAddedTokens : public ::testing::Test {
 protected:
  // What loading the folder prints on stderr.
  std::string loading_warnings() {
    ::testing::internal::CaptureStderr();
    tokenizer_ = Tokenizer::load(folder_);
    return ::testing::internal::GetCapturedStderr();
  }

  const test::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST(AddedTokenSources, AreMergedAsInTheReference) {
  const json recorded = read_json(test::golden_tokenizers() / "added_tokens.json");
  ASSERT_GT(recorded["cases"].size(), 55u);
  for (const json& one : recorded["cases"]) {
    const test::TemporaryFolder folder;
    write_case(folder.path(), one["base"], one["files"]);
    const auto tokenizer = Tokenizer::load(folder.path());
    for (size_t i = 0; i < recorded["texts"].size(); ++i) {
      const std::string text = recorded["texts"][i];
      const std::string where =
          one["base"].get<std::string>() + ", " + one["name"].get<std::string>() + ": " + text;
      const std::vector<int64_t> ids = tokenizer->encode(text);
      EXPECT_EQ(json(ids), one["ids"][i]) << where;
      EXPECT_EQ(json(tokenizer->encode(text, {.parse_special = false})), one["unparsed"][i]) << where;
      EXPECT_EQ(json(tokenizer->decode(ids, false)), one["decoded"][i]) << where;
      EXPECT_EQ(json(tokenizer->decode(ids)), one["plain"][i]) << where;
    }
  }
}

TEST_F(SourcesOfAddedTokens, SaysWhichFlagsWin) {
  json files;
  files["added_tokens"] = {{{"id", 700}, {"content", "<|new_a|>"}, {"special", true}}};
  files["tokenizer_config.json"]["added_tokens_decoder"]["700"] = {
      {"content", "<|new_a|>"}, {"special", true}, {"lstrip", true}};
  write_case(folder_, "qwen2", files);
  EXPECT_THAT(loading_warnings(), HasSubstr("other flags of the added token \"<|new_a|>\""));
  EXPECT_EQ(loading_warnings(), "");  // once in a process
}

TEST_F(SourcesOfAddedTokens, SaysWhichIdWins) {
  json files;
  files["tokenizer_config.json"]["added_tokens_decoder"]["900"] = {{"content", "<|new_a|>"},
                                                                   {"special", true}};
  write_case(folder_, "sentencepiece-bpe", files);
  EXPECT_THAT(loading_warnings(),
              HasSubstr("\"<|new_a|>\" tokenizer_config.json states id 900, but 640 is taken"));
}

TEST_F(SourcesOfAddedTokens, SaysWhichRoleWins) {
  write_case(folder_, "gpt2",
             {{"tokenizer_config.json", {{"eos_token", "<|im_end|>"}}},
              {"special_tokens_map.json", {{"eos_token", "<|endoftext|>"}}}});
  EXPECT_THAT(loading_warnings(), HasSubstr("another eos_token; \"<|endoftext|>\" of the second is taken"));
}

TEST_F(SourcesOfAddedTokens, AgreementIsSilent) {
  json files;
  files["tokenizer_config.json"]["added_tokens_decoder"]["0"] = {
      {"content", "<|endoftext|>"}, {"special", true}, {"normalized", false}};
  files["tokenizer_config.json"]["eos_token"] = "<|endoftext|>";
  files["special_tokens_map.json"]["eos_token"]["content"] = "<|endoftext|>";
  files["added_tokens.json"]["<|endoftext|>"] = 0;
  write_case(folder_, "gpt2", files);
  EXPECT_EQ(loading_warnings(), "");
}

// added_tokens.json adds tokens that the decoder lacks; transformers does not read it beside a decoder.
TEST_F(SourcesOfAddedTokens, NumbersBesideADecoderAreRead) {
  json files;
  files["tokenizer_config.json"]["added_tokens_decoder"]["640"] = {{"content", "<|new_a|>"},
                                                                   {"special", true}};
  files["added_tokens.json"] = {{"<|new_a|>", 640}, {"<|new_b|>", 641}};
  write_case(folder_, "sentencepiece-bpe", files);
  EXPECT_EQ(loading_warnings(), "");
  EXPECT_EQ(tokenizer_->encode("<|new_a|><|new_b|>"), (std::vector<int64_t>{640, 641}));
}

// Heads and stores record the hash: it may change only when the tokens change.
TEST_F(SourcesOfAddedTokens, TheHashChangesWithTheTokensOnly) {
  write_case(folder_, "sentencepiece-bpe", {{"tokenizer_config.json", {{"eos_token", "</s>"}}}});
  loading_warnings();
  EXPECT_EQ(tokenizer_->hash(), "cd7d7b786a871721");
  write_file_atomically(folder_ / "special_tokens_map.json", R"({"eos_token": {"content": "</s>"}})");
  loading_warnings();
  EXPECT_EQ(tokenizer_->hash(), "cd7d7b786a871721");
  write_file_atomically(folder_ / "special_tokens_map.json", R"({"eos_token": {"content": "<|new|>"}})");
  loading_warnings();
  EXPECT_NE(tokenizer_->hash(), "cd7d7b786a871721");
  EXPECT_EQ(Tokenizer::load(test::golden_tokenizers() / "gpt2")->hash(), "4bbb3b65976b0315");
  EXPECT_EQ(Tokenizer::load(test::golden_tokenizers() / "sentencepiece-unigram")->hash(), "035bd85be0e9bfca");
}

TEST_F(SourcesOfAddedTokens, WhatIsMalformedIsOneSentence) {
  const auto error_with = [&](const char* name, const json& content) {
    write_case(folder_, "gpt2", {{name, content}});
    const std::string error = test::input_error([&] { Tokenizer::load(folder_); });
    std::filesystem::remove(folder_ / name);
    return error;
  };
  EXPECT_THAT(error_with("special_tokens_map.json", json::array()), HasSubstr("special_tokens_map.json"));
  EXPECT_THAT(error_with("added_tokens.json", {{"<a>", -1}}), HasSubstr("\"<a>\""));
  EXPECT_THAT(error_with("tokenizer_config.json", {{"added_tokens_decoder", 3}}),
              HasSubstr("added_tokens_decoder"));
  EXPECT_THAT(error_with("tokenizer_config.json", {{"added_tokens_decoder", {{"x", {{"content", "y"}}}}}}),
              HasSubstr("expected a token id as key"));
  EXPECT_THAT(error_with("tokenizer_config.json", {{"extra_special_tokens", {{{"content", 1}}}}}),
              HasSubstr("extra_special_tokens"));
  for (const json& odd : std::vector<json>{nullptr, 1, "text", json::array({nullptr, 1}), json::object()})
    for (const char* key : {"eos_token", "extra_special_tokens", "additional_special_tokens"})
      EXPECT_EQ(error_with("tokenizer_config.json", {{key, odd}}), "") << key << " " << odd;
}

}  // namespace
}  // namespace clover::data
