#include "infer/controls/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/files/error.h"
#include "tests/infer/requests/tiny_tokenizer.h"
#include "tests/support/temporary_folder.h"

namespace clover::infer {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

GenerationSettings read(const json& generation, const json& config = json::object(), int64_t vocab = 100) {
  test::TemporaryFolder folder;
  folder.write("config.json", config.dump());
  if (!generation.is_null()) folder.write("generation_config.json", generation.dump());
  return read_generation_settings(folder.path(), vocab);
}

TEST(GenerationSettings, SupportedSettingsAreInForceAndNamed) {
  const GenerationSettings own = read({{"eos_token_id", 2},
                                       {"repetition_penalty", 1.1},
                                       {"no_repeat_ngram_size", 3},
                                       {"min_new_tokens", 4},
                                       {"bad_words_ids", {{5, 6}, {7}, {8, 100}}},
                                       {"suppress_tokens", {-1, 9, 99, 100}},
                                       {"begin_suppress_tokens", {3}}});
  EXPECT_EQ(own.controls.to_json(), (json{{"repetition_penalty", 1.1},
                                          {"no_repeat_ngram_size", 3},
                                          {"min_tokens", 4},
                                          {"bad_words_ids", {{5, 6}, {7}}},
                                          {"suppress_tokens", {9, 99}},
                                          {"begin_suppress_tokens", {3}}}));
  EXPECT_THAT(own.notice,
              AllOf(HasSubstr("generation_config.json: in force"), HasSubstr("suppress_tokens [9,99]"),
                    HasSubstr("repetition_penalty 1.1"), Not(HasSubstr("not done")), Not(HasSubstr("\n"))));
}

TEST(GenerationSettings, UnsupportedSettingsAreNamed) {
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, json>>{
           {"num_beams", 4},
           {"penalty_alpha", 0.6},
           {"encoder_repetition_penalty", 1.2},
           {"encoder_no_repeat_ngram_size", 3},
           {"exponential_decay_length_penalty", {5, 1.1}},
           {"forced_bos_token_id", 0},
           {"forced_eos_token_id", 2},
           {"sequence_bias", json::array({json::array({json::array({5}), 1.5})})},
           {"guidance_scale", 1.5},
           {"max_new_tokens", 200},
           {"stop_strings", {"\n\n"}}}) {
    const GenerationSettings own = read({{name, value}});
    EXPECT_THAT(own.notice, AllOf(HasSubstr("not done: "), HasSubstr(name), Not(HasSubstr("in force"))));
    EXPECT_EQ(own.controls, ControlFields{});
  }
  const GenerationSettings sampling =
      read({{"do_sample", true}, {"temperature", 0.6}, {"top_p", 0.9}, {"typical_p", 0.8}});
  EXPECT_THAT(sampling.notice, AllOf(HasSubstr("left to --temperature"), HasSubstr("temperature 0.6"),
                                     HasSubstr("typical_p 0.8")));
}

TEST(GenerationSettings, ValuesWithoutEffectAreIgnored) {
  for (const json& file :
       {json{{"bos_token_id", 1}, {"eos_token_id", {2, 3}}, {"transformers_version", "5.0.0"}},
        json{{"repetition_penalty", 1.0}, {"num_beams", 1}, {"guidance_scale", 1.0}, {"min_length", 0}},
        json{{"do_sample", false}, {"temperature", 0.6}, {"top_p", 0.9}, {"typical_p", 0.5}},
        json{{"no_repeat_ngram_size", -1},
             {"repetition_penalty", nullptr},
             {"suppress_tokens", json::array()}},
        json::array()}) {
    EXPECT_EQ(read(file).notice, "") << file;
    EXPECT_TRUE(read(file).controls.to_json().empty()) << file;
  }
}

// Folders of before there was such a file.
TEST(GenerationSettings, AreReadFromConfigWithoutGenerationConfig) {
  EXPECT_EQ(read(nullptr, {{"repetition_penalty", 1.2}}).controls.repetition_penalty, 1.2);
  EXPECT_FALSE(read(json::object(), {{"repetition_penalty", 1.2}}).controls.repetition_penalty.has_value());
}

TEST(GenerationSettings, WrongValuesAreRefused) {
  for (const json& file :
       {json{{"repetition_penalty", 0}}, json{{"repetition_penalty", "1.1"}}, json{{"bad_words_ids", {3, 4}}},
        json{{"bad_words_ids", json::array({json::array()})}}, json{{"suppress_tokens", 5}},
        json{{"no_repeat_ngram_size", 1.5}}}) {
    try {
      read(file);
      ADD_FAILURE() << file;
    } catch (const data::InputError& error) {
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("generation_config.json: "), HasSubstr(file.items().begin().key()),
                        HasSubstr(": expected "), HasSubstr(", found ")));
    }
  }
}

TEST(Controls, ALineWinsOverFlagsAndTheseOverTheModelsOwn) {
  ControlFields line, flags, own;
  own.repetition_penalty = 1.3;
  own.suppressed = {{4}};
  own.min_tokens = 7;
  flags.repetition_penalty = 1.2;
  flags.presence_penalty = 0.5;
  read_controls({{"repetition_penalty", 1}, {"suppress_tokens", json::array()}, {"min_tokens", nullptr}},
                line);
  line.fill_from(flags);
  line.fill_from(own);
  EXPECT_EQ(line.to_json(), (json{{"presence_penalty", 0.5}, {"min_tokens", 7}}));
}

// A token a byte: words are bytes, with and without a space before them.
TEST(Controls, WordsBecomeTheirTokens) {
  test::TemporaryFolder folder;
  test::write_tiny_tokenizer(folder);
  const auto tokenizer = data::Tokenizer::load(folder);
  EXPECT_EQ(resolve_controls({}, *tokenizer), nullptr);
  ControlFields neutral;
  read_controls({{"repetition_penalty", 1.0}, {"logit_bias", json::object()}, {"bad_words", json::array()}},
                neutral);
  EXPECT_EQ(resolve_controls(neutral, *tokenizer), nullptr);
  ControlFields asked;
  read_controls(
      {{"bad_words", {"ab", "<|im_end|>"}}, {"bad_words_ids", {{1, 2}}}, {"logit_bias", {{"5", -3}}}}, asked);
  const auto controls = resolve_controls(asked, *tokenizer);
  EXPECT_EQ(controls->bad_words,
            (std::vector<std::vector<int64_t>>{{1, 2}, {'a', 'b'}, {' ', 'a', 'b'}, {257}, {' ', 257}}));
  EXPECT_EQ(controls->bias, (std::vector<std::pair<int64_t, double>>{{5, -3.0}}));
}

}  // namespace
}  // namespace clover::infer
