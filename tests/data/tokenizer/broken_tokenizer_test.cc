// Damaged and unsupported tokenizer folders: each is an InputError of one sentence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "data/files/files.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/support/goldens.h"
#include "tests/support/input_error.h"
#include "tests/support/temporary_folder.h"

namespace clover::data {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class BrokenFolder : public ::testing::Test {
 protected:
  void write(const std::string& name, std::string_view bytes) {
    write_file_atomically(folder_ / name, bytes);
  }

  std::string error() const {
    return test::input_error([&] { Tokenizer::load(folder_); });
  }

  // The error after `change` of a valid tokenizer.json.
  std::string error_after(const std::function<void(json&)>& change) {
    json tokenizer = read_json(test::golden_tokenizers() / "gpt2" / "tokenizer.json");
    change(tokenizer);
    write("tokenizer.json", tokenizer.dump());
    return error();
  }

  const test::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(BrokenFolder, EmptyFolderNamesBothFiles) {
  EXPECT_THAT(error(), AllOf(HasSubstr("tokenizer.json"), HasSubstr("tokenizer.model")));
}

TEST_F(BrokenFolder, NamesWhatIsNotSupported) {
  EXPECT_EQ(error_after([](json&) {}), "");
  EXPECT_THAT(error_after([](json& t) { t["model"]["type"] = "WordPiece"; }), HasSubstr("WordPiece"));
  EXPECT_THAT(error_after([](json& t) {
                t["normalizer"] = {{"type", "Lowercase"}};
              }),
              HasSubstr("Lowercase"));
  EXPECT_THAT(error_after([](json& t) {
                t["pre_tokenizer"] = {{"type", "Whitespace"}};
              }),
              HasSubstr("Whitespace"));
  EXPECT_THAT(error_after([](json& t) { t["pre_tokenizer"]["add_prefix_space"] = true; }),
              HasSubstr("add_prefix_space"));
  EXPECT_THAT(error_after([](json& t) {
                t["post_processor"] = {{"type", "BertProcessing"}};
              }),
              HasSubstr("BertProcessing"));
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const json token = {{"SpecialToken", {{"id", "<|im_end|>"}, {"type_id", 0}}}};
  for (const json& single : {json::array({text, token}), json::array({token, text, token}),
                             json::array({token, token, text}), json::array()}) {
    EXPECT_THAT(error_after([&](json& t) {
                  t["post_processor"] = {{"type", "TemplateProcessing"}, {"single", single}};
                }),
                HasSubstr("none behind"))
        << single;
  }
  EXPECT_THAT(error_after([](json& t) { t["model"]["byte_fallback"] = true; }), HasSubstr("byte_fallback"));
  EXPECT_THAT(error_after([](json& t) { t["model"]["dropout"] = 0.1; }), HasSubstr("dropout"));
  EXPECT_THAT(error_after([](json& t) { t["model"]["end_of_word_suffix"] = "</w>"; }), HasSubstr("</w>"));
  const json split = {{"type", "Split"}, {"pattern", {{"Regex", "x+"}}}, {"behavior", "Isolated"}};
  EXPECT_THAT(error_after([&](json& t) {
                t["pre_tokenizer"] = {
                    {"type", "Sequence"},
                    {"pretokenizers", {split, {{"type", "ByteLevel"}, {"add_prefix_space", false}}}}};
              }),
              HasSubstr("x+"));
}

TEST_F(BrokenFolder, NamesWhatIsMalformed) {
  EXPECT_THAT(error_after([](json& t) { t["model"]["merges"][3] = "a zz"; }),
              AllOf(HasSubstr("merges[3]"), HasSubstr("zz")));
  EXPECT_THAT(error_after([](json& t) { t["model"]["merges"][3] = "abc"; }), HasSubstr("merges[3]"));
  EXPECT_THAT(error_after([](json& t) { t["model"]["merges"] = 7; }), HasSubstr("merges"));
  EXPECT_THAT(error_after([](json& t) { t["model"]["vocab"]["x"] = -1; }), HasSubstr("\"x\""));
  EXPECT_THAT(error_after([](json& t) { t["model"]["vocab"]["x"] = 1e18; }), HasSubstr("\"x\""));
  EXPECT_THAT(error_after([](json& t) { t["model"]["vocab"]["x"] = int64_t{1} << 60; }), HasSubstr("\"x\""));
  EXPECT_THAT(error_after([](json& t) { t["model"].erase("vocab"); }), HasSubstr("vocab"));
  EXPECT_THAT(error_after([](json& t) { t.erase("model"); }), HasSubstr("model"));
  EXPECT_THAT(error_after([](json& t) { t = 3; }), HasSubstr("model"));
  EXPECT_THAT(error_after([](json& t) { t["added_tokens"] = 1; }), HasSubstr("added_tokens"));
  EXPECT_THAT(error_after([](json& t) { t["added_tokens"][0].erase("content"); }),
              HasSubstr("added_tokens[0]"));
  EXPECT_THAT(error_after([](json& t) { t["added_tokens"][0]["lstrip"] = "no"; }), HasSubstr("lstrip"));
  write("tokenizer_config.json", "[]");
  EXPECT_THAT(error_after([](json&) {}), HasSubstr("tokenizer_config.json"));
}

TEST_F(BrokenFolder, TruncatedAndDeepJsonIsOneSentence) {
  const std::string whole = read_file(test::golden_tokenizers() / "gpt2" / "tokenizer.json");
  for (size_t length = 0; length < whole.size(); length += 997) {
    write("tokenizer.json", std::string_view(whole).substr(0, length));
    EXPECT_THAT(error(), HasSubstr("tokenizer.json: expected valid JSON"));
  }
  write("tokenizer.json", "{\"model\":" + std::string(100000, '['));
  EXPECT_THAT(error(), HasSubstr("deep"));
}

// Every field of the wrong type is an error or harmless, never a crash.
TEST_F(BrokenFolder, AnyFieldMayBeOfAnyType) {
  const json whole = read_json(test::golden_tokenizers() / "llama3" / "tokenizer.json");
  const std::vector<json> odd = {
      nullptr, 1, -2.5, true, "text", json::array(), json::object(), json::array({nullptr})};
  for (const char* place : {"/model",
                            "/model/vocab",
                            "/model/merges",
                            "/model/type",
                            "/model/unk_token",
                            "/model/ignore_merges",
                            "/added_tokens",
                            "/added_tokens/0",
                            "/added_tokens/0/id",
                            "/added_tokens/0/special",
                            "/normalizer",
                            "/pre_tokenizer",
                            "/pre_tokenizer/type",
                            "/pre_tokenizer/pretokenizers",
                            "/pre_tokenizer/pretokenizers/0",
                            "/pre_tokenizer/pretokenizers/0/pattern",
                            "/pre_tokenizer/pretokenizers/0/invert",
                            "/post_processor",
                            "/post_processor/processors",
                            "/post_processor/processors/1/single",
                            "/post_processor/processors/1/single/0",
                            "/post_processor/processors/1/single/0/SpecialToken"}) {
    for (const json& value : odd) {
      json tokenizer = whole;
      tokenizer[json::json_pointer(place)] = value;
      write("tokenizer.json", tokenizer.dump());
      error();
    }
  }
}

TEST_F(BrokenFolder, GarbageModelFileIsOneSentence) {
  const std::string whole = read_file(test::golden_tokenizers() / "sentencepiece-bpe" / "tokenizer.model");
  std::mt19937 source(17);
  std::string noise(1000, '\0');
  for (char& byte : noise) byte = static_cast<char>(source());
  for (const std::string& bytes :
       {std::string(), std::string("garbage"), whole.substr(0, whole.size() / 2 + 1), noise}) {
    write("tokenizer.model", bytes);
    EXPECT_THAT(error(), HasSubstr("tokenizer.model: expected a SentencePiece model"));
  }
}

TEST_F(BrokenFolder, OtherJsonKindGivesWayToTheModelFile) {
  json tokenizer = read_json(test::golden_tokenizers() / "gpt2" / "tokenizer.json");
  tokenizer["pre_tokenizer"] = nullptr;
  write("tokenizer.json", tokenizer.dump());
  EXPECT_THAT(error(), HasSubstr("pre_tokenizer"));
  write("tokenizer.model", read_file(test::golden_tokenizers() / "sentencepiece-bpe" / "tokenizer.model"));
  EXPECT_EQ(Tokenizer::load(folder_)->vocab_size(), 640);
  write("tokenizer.json", read_file(test::golden_tokenizers() / "gpt2" / "tokenizer.json"));
  EXPECT_EQ(Tokenizer::load(folder_)->token_id("<|im_end|>"), 2);
}

}  // namespace
}  // namespace clover::data
