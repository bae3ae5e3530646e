#include "infer/engine/end_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/files/error.h"
#include "tests/infer/requests/tiny_tokenizer.h"
#include "tests/support/input_error.h"
#include "tests/support/temporary_folder.h"

namespace clover::infer {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Ids = std::vector<int64_t>;

class EndTokens : public testing::Test {
 protected:
  EndTokens() { test::write_tiny_tokenizer(folder_); }  // eos_token "<|im_end|>", 257

  /// `of_config`, `of_generation`: eos_token_id in config.json and generation_config.json; of_generation
  /// null: no such file.
  void write_model(const json& of_config, const json& of_generation = nullptr) {
    json config = {{"model_type", "llama"},    {"hidden_size", 64},       {"num_hidden_layers", 1},
                   {"num_attention_heads", 4}, {"intermediate_size", 64}, {"vocab_size", 258}};
    config["eos_token_id"] = of_config;
    folder_.write("config.json", config.dump());
    if (!of_generation.is_null())
      folder_.write("generation_config.json", json{{"eos_token_id", of_generation}}.dump());
  }
  void write_eos(const json& of_tokenizer, const json& of_map = nullptr, bool with_decoder = false) {
    json config = {{"eos_token", of_tokenizer}};
    if (with_decoder) config["added_tokens_decoder"] = json::object();
    folder_.write("tokenizer_config.json", config.dump());
    folder_.write("special_tokens_map.json", json{{"eos_token", of_map}}.dump());
  }

  std::unique_ptr<data::Tokenizer> tokenizer() const { return data::Tokenizer::load(folder_); }
  model::TargetConfig config() const { return model::TargetConfig::read(folder_.path()); }
  Ids ids(const std::vector<std::string>& named = {}) const { return end_ids(named, config(), *tokenizer()); }
  std::vector<std::string> notes() const {
    return end_token_warnings(folder_.path().string(), config(), *tokenizer());
  }

  test::TemporaryFolder folder_;
};

TEST_F(EndTokens, AreTheModelsAndTheTokenizersOwn) {
  write_model(5);
  EXPECT_EQ(ids(), (Ids{5, 257}));
  write_model(5, {6, 257, 7});
  EXPECT_EQ(ids(), (Ids{6, 257, 7}));
  write_model(5, 6.0);
  EXPECT_EQ(ids(), (Ids{6, 257}));
  write_model(nullptr);
  folder_.write("generation_config.json", "{}");
  EXPECT_EQ(ids(), (Ids{257}));
  EXPECT_THAT(notes(), IsEmpty());
}

TEST_F(EndTokens, AreWhatTheUserNames) {
  write_model(5);
  EXPECT_EQ(ids({"model"}), (Ids{5}));
  EXPECT_EQ(ids({"tokenizer"}), (Ids{257}));
  EXPECT_EQ(ids({"model", "<|im_start|>", "17", "17"}), (Ids{5, 256, 17}));
  EXPECT_EQ(ids({"none"}), Ids{});
  for (const char* wrong : {"<|no_such|>", "258", "-1", "1e1", ""})
    EXPECT_THAT(test::input_error([&] { ids({wrong}); }), HasSubstr("--end-tokens")) << wrong;
  EXPECT_THROW(ids({"none", "5"}), data::InputError);
}

// As transformers: special_tokens_map.json counts first where tokenizer_config.json has no
// added_tokens_decoder, and not at all where it has one.
TEST_F(EndTokens, OfATokenizerComeFromEitherOfItsFiles) {
  write_model(5);
  write_eos("<|im_start|>", "<|im_end|>");
  EXPECT_EQ(ids({"tokenizer"}), (Ids{257}));
  write_eos("<|im_start|>", "<|im_end|>", true);
  EXPECT_EQ(ids({"tokenizer"}), (Ids{256}));
  write_eos(nullptr, json{{"content", "<|im_start|>"}, {"lstrip", false}}, true);
  EXPECT_EQ(ids({"tokenizer"}), Ids{});
  write_eos({{"content", "<|im_start|>"}, {"__type", "AddedToken"}});
  EXPECT_EQ(ids({"tokenizer"}), (Ids{256}));
  write_eos(nullptr);
  EXPECT_EQ(ids(), (Ids{5}));
}

TEST_F(EndTokens, ThatAreNoneAreSaid) {
  write_model(nullptr);
  write_eos(nullptr);
  EXPECT_THAT(notes(), ElementsAre(HasSubstr("neither the model nor its tokenizer names an end token")));
  write_model("5", {6, 2.5, true, "x", nullptr});
  EXPECT_EQ(ids(), (Ids{6}));
  EXPECT_THAT(notes(), ElementsAre(HasSubstr("config.json: eos_token_id is \"5\", expected an integer"),
                                   HasSubstr("2.5"), HasSubstr("true"), HasSubstr("\"x\""),
                                   HasSubstr("generation_config.json: eos_token_id is null")));
  write_model({5, 258, -1}, 1e30);
  EXPECT_THAT(notes(), ElementsAre(HasSubstr("258, outside the vocabulary of 258 tokens"), HasSubstr("-1"),
                                   HasSubstr("1e+30"), HasSubstr("neither")));
  write_eos("</no>");
  write_model(5, 5);
  EXPECT_THAT(notes(),
              ElementsAre(HasSubstr("eos_token \"</no>\" has the id 258, outside the model's vocabulary")));
}

TEST_F(EndTokens, ThatCannotBeMeantAreRefused) {
  for (const json& wrong : {json{{"id", 5}}, json::array({json::array({5})})}) {
    write_model(wrong);
    EXPECT_THAT(test::input_error([&] { notes(); }),
                HasSubstr("eos_token_id: expected a token's id or a list of ids"));
  }
}

}  // namespace
}  // namespace clover::infer
