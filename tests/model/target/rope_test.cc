// Oracle: Hugging Face transformers with the same settings, recorded by scripts/goldens/make_rope_goldens.py;
// context lengths as in vLLM, computed by hand.
#include "model/target/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "data/files/files.h"
#include "model/cache/kv_cache.h"
#include "model/target/target_config.h"
#include "tests/support/goldens.h"
#include "tests/support/input_error.h"
#include "tests/support/reading.h"
#include "tests/support/temporary_folder.h"

namespace clover::model {
namespace {

using nlohmann::json;

/// A tiny Llama's config.json with `changes`.
TargetConfig config_with(const json& changes) {
  const test::TemporaryFolder folder;
  json config = {{"model_type", "llama"},        {"hidden_size", 64},       {"num_attention_heads", 4},
                 {"num_hidden_layers", 1},       {"intermediate_size", 96}, {"vocab_size", 130},
                 {"max_position_embeddings", 64}};
  config.update(changes);
  folder.write("config.json", config.dump());
  return TargetConfig::read_file(folder / "config.json");
}

std::string error_with(const json& changes) {
  return test::input_error([&] { config_with(changes); });
}

void expect_like(const json& expected, const std::vector<double>& frequencies) {
  ASSERT_EQ(expected.size(), frequencies.size());
  for (size_t i = 0; i < frequencies.size(); ++i)  // recorded in fp32
    EXPECT_NEAR(frequencies[i], expected[i].get<double>(), 3e-6 * std::abs(frequencies[i])) << "pair " << i;
}

TEST(Rope, ReadsEverySettingAsTransformersDoes) {
  const json golden = data::read_json(test::goldens() / "rope.json").at("cases");
  ASSERT_GT(golden.size(), 60u);
  for (const json& one : golden) {
    SCOPED_TRACE(one.at("name").get<std::string>());
    if (one.contains("refused")) {
      EXPECT_THAT(error_with(one.at("config")), testing::HasSubstr("config.json"));
      continue;
    }
    const TargetConfig config = config_with(one.at("config"));
    expect_like(one.at("frequencies"), config.rope.frequencies(config.head_dim, 0));
    expect_like(one.value("long", one.at("frequencies")), config.rope.frequencies(config.head_dim, 100));
    EXPECT_EQ(config.rope.depends_on_length(), one.contains("long"));
    EXPECT_NEAR(config.rope.attention_factor, one.at("scale").get<double>(), 1e-6);
  }
}

TEST(Rope, NullIsAbsent) {
  const json linear = {{"type", "linear"}, {"factor", 4.0}};
  json same = linear;
  same.update({{"rope_type", nullptr}, {"rope_theta", nullptr}});
  const json plainly = config_with({{"rope_scaling", linear}}).rope.settings();
  EXPECT_EQ(config_with({{"rope_scaling", same}, {"rope_theta", nullptr}}).rope.settings(), plainly);
  EXPECT_EQ(config_with({{"rope_parameters", same}, {"rope_scaling", nullptr}}).rope.settings(), plainly);
}

TEST(Rope, SaysWhatItDrops) {
  const json linear = {{"type", "linear"}, {"factor", 4.0}};
  const auto notes = config_with({{"rope_scaling", linear},
                                  {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}}}})
                         .notes;
  EXPECT_THAT(notes, testing::ElementsAre(testing::HasSubstr("rope_theta is 10000.0, not 500000.0")));
  EXPECT_THAT(config_with({{"rope_scaling", linear}}).notes, testing::IsEmpty());
  EXPECT_THAT(config_with({{"rope_theta", 5e5}, {"rope_parameters", {{"rope_theta", 5e5}}}}).notes,
              testing::IsEmpty());
}

TEST(Rope, RefusesWhatCannotBeComputed) {
  const auto scaled = [](const json& scaling) { return error_with({{"rope_scaling", scaling}}); };
  for (const json& factor : {json(0), json(-2.0), json(true), json("4")})
    EXPECT_THAT(scaled({{"type", "linear"}, {"factor", factor}}), testing::HasSubstr("\"factor\""));
  EXPECT_THAT(error_with({{"rope_theta", 0}}), testing::HasSubstr("\"rope_theta\""));
  EXPECT_THAT(scaled({{"type", "linear"}, {"factor", 1e-320}}), testing::HasSubstr("no numbers"));
  EXPECT_THAT(
      error_with({{"rope_parameters", {{"full_attention", {{"rope_type", "linear"}, {"factor", 4.0}}}}}}),
      testing::HasSubstr("full_attention"));
}

TEST(Rope, LengthsAreCountedAsVllmCounts) {
  const auto context = [](const json& changes) { return config_with(changes).context; };
  const auto scaled = [&](json scaling, json others = json::object()) {
    others["rope_scaling"] = std::move(scaling);
    return context(others);
  };
  EXPECT_EQ(context(json::object()), 64);
  EXPECT_EQ(scaled({{"type", "linear"}, {"factor", 4.0}}), 256);
  EXPECT_EQ(scaled({{"type", "linear"}, {"factor", 2.5}}), 160);
  EXPECT_EQ(scaled({{"type", "dynamic"}, {"factor", 4.0}}), 256);
  EXPECT_EQ(scaled({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}}), 128);
  EXPECT_EQ(scaled({{"rope_type", "yarn"}, {"factor", 4.0}}), 256);
  const json llama3 = {
      {"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1}, {"high_freq_factor", 4}};
  EXPECT_EQ(scaled(llama3), 64) << "its positions are those of the stretched context";
  EXPECT_EQ(scaled({{"type", "default"}, {"factor", 4.0}}), 64);
  // the keys of Vicuna-16k, with 1/64 of its lengths
  EXPECT_EQ(scaled({{"type", "linear"}, {"factor", 4.0}}, {{"max_sequence_length", 256}}), 256);
  for (const char* key : {"n_positions", "max_seq_len", "seq_length", "max_target_positions",
                          "max_sequence_length", "max_seq_length", "seq_len"}) {
    EXPECT_EQ(context({{key, 48}}), 48) << key;
    EXPECT_EQ(context({{key, 80}}), 64) << key;
    EXPECT_EQ(context({{key, 80}, {"max_position_embeddings", nullptr}}), 80) << key;
    EXPECT_EQ(context({{key, nullptr}}), 64) << key;
  }
  EXPECT_EQ(context({{"model_max_length", 512}}), 512);
  EXPECT_EQ(context({{"model_max_length", 1e30}}), 64) << "what tokenizers write for no limit";
  EXPECT_EQ(
      scaled({{"type", "linear"}, {"factor", 4.0}}, {{"model_type", "mistral"}, {"sliding_window", 96}}), 96);
  const auto qwen = [&](json others) {
    others.update({{"model_type", "qwen2"}, {"use_sliding_window", true}, {"max_position_embeddings", 8192}});
    return context(others);
  };
  EXPECT_EQ(qwen({{"sliding_window", 96}}), 96);
  EXPECT_EQ(qwen(json::object()), 4096) << "transformers' window";
  EXPECT_EQ(qwen({{"sliding_window", nullptr}}), 8192);
}

/// Cosines of `count` more tokens of the sequence.
at::Tensor cosines(KvCache& cache, int32_t sequence, int64_t count) {
  RowBatch batch;
  std::vector<int32_t> kept;
  for (int64_t i = 0; i < count; ++i) {
    batch.add(0, sequence, static_cast<int32_t>(i) - 1);
    kept.push_back(static_cast<int32_t>(i));
  }
  const at::Tensor cos = cache.place(batch).cos;
  cache.keep_rows(sequence, kept, 1);
  return cos;
}

/// In transformers a prompt is rotated by the frequencies of its own length, and each later token by those of
/// the length that includes it.
TEST(Rope, AngleOfALongTextHangsOnItsLengthWhenItWasRead) {
  const TargetConfig config = config_with({{"rope_scaling", {{"type", "dynamic"}, {"factor", 4.0}}}});
  const int64_t trained = 64, prompt = 80;
  const auto expected = [&](int64_t position, int64_t length) {
    std::vector<float> row;
    for (const double frequency : config.rope.frequencies(config.head_dim, length))
      row.push_back(static_cast<float>(std::cos(static_cast<double>(position) * frequency)));
    return at::tensor(row);
  };
  const KvShape shape{1,
                      1,
                      16,
                      at::kFloat,
                      config.rope.frequencies(16, 0),
                      at::kCPU,
                      1,
                      [&](int64_t length) { return config.rope.frequencies(16, length); },
                      trained};
  KvCache cache(shape, 64, 8);
  const int32_t one = cache.open(prompt), other = cache.open(10);
  const at::Tensor first = cosines(cache, one, 30), rest = cosines(cache, one, prompt - 30);
  const at::Tensor behind = cosines(cache, one, 1), token_by_token = cosines(cache, other, prompt);
  for (const int64_t position : {0, 29}) EXPECT_TRUE(at::equal(first[position], expected(position, prompt)));
  for (const int64_t position : {30, 63, 64, 79})
    EXPECT_TRUE(at::equal(rest[position - 30], expected(position, prompt))) << position;
  EXPECT_TRUE(at::equal(behind[0], expected(prompt, prompt + 1)));
  for (const int64_t position : {0, 63, 64, 79})
    EXPECT_TRUE(at::equal(token_by_token[position], expected(position, position + 1))) << position;
}

TEST(Rope, PromptsTurnedByTheirLengthShareNothing) {
  const KvShape shape{1,
                      1,
                      16,
                      at::kFloat,
                      std::vector<double>(8, 0.5),
                      at::kCPU,
                      1,
                      [](int64_t) { return std::vector<double>(8, 0.25); },
                      64};
  std::vector<int64_t> ids(80);
  for (const bool is_long : {false, true}) {
    KvCache cache(shape, 64, 8);
    const int32_t first = cache.open(is_long ? 80 : 40);
    cosines(cache, first, 40);
    cache.publish(first, std::span(ids).first(40));
    const int32_t second = cache.open(40), third = cache.open(80);
    EXPECT_EQ(cache.share_prefix(second, std::span(ids).first(40)), is_long ? 0 : 32);
    EXPECT_EQ(cache.share_prefix(third, ids), 0);
    EXPECT_EQ(cache.copyable_page_rows(third, ids), 0);
  }
}

}  // namespace
}  // namespace clover::model
