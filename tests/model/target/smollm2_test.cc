// The real example model against Hugging Face transformers (goldens of
// scripts/goldens/make_target_goldens.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/files/files.h"
#include "data/files/safetensors.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/support/goldens.h"
#include "tests/support/reading.h"

namespace clover {
namespace {

const std::filesystem::path folder =
    std::filesystem::path(CLOVER_SOURCE_DIR) / "models/SmolLM2-135M-Instruct";

data::SafetensorsReader golden() {
  return data::SafetensorsReader::open(test::golden_target("smollm2.safetensors"));
}

TEST(SmolLM2, Fp32LogitsAgreeWithTransformers) {
  const auto target = model::Target::load(folder, at::kFloat);
  const at::Tensor logits = test::read_text(*target, test::to_ids(golden().read("ids"))).logits;
  const at::Tensor best = at::gather(logits, 1, golden().read("top_ids").to(at::kLong));
  EXPECT_LT((best - golden().read("top_logits")).abs().max().item<float>(), 2e-3);
  const at::Tensor rows = logits.index_select(0, golden().read("rows").to(at::kLong));
  EXPECT_LT((rows - golden().read("row_logits")).abs().max().item<float>(), 2e-3);
  EXPECT_LT((logits.logsumexp(1) - golden().read("log_sum_exp")).abs().max().item<float>(), 2e-3);
}

TEST(SmolLM2, Bf16BestTokensAgreeWithTransformers) {
  const auto target = model::Target::load(folder, at::kBFloat16);
  const at::Tensor best = test::read_text(*target, test::to_ids(golden().read("ids"))).logits.argmax(1);
  const auto share = [&](const at::Tensor& other) {
    return (best == other).to(at::kFloat).mean().item<float>();
  };
  EXPECT_GE(share(golden().read("top_ids").to(at::kLong).select(1, 0)), 0.98);
  EXPECT_GE(share(golden().read("top_1_bf16").to(at::kLong)), 0.97);
}

// Texts of the golden corpus, with and without special tokens in them, against the tokenizers library.
TEST(SmolLM2, EncodesLikeTheReference) {
  const auto tokenizer = data::Tokenizer::load(folder);
  const auto expected = data::read_json(test::golden_tokenizer("smollm2") / "expected.json");
  std::vector<std::string> texts;
  std::ifstream lines(test::golden_tokenizers() / "corpus.jsonl");
  for (std::string line; std::getline(lines, line);) texts.push_back(nlohmann::json::parse(line));
  ASSERT_FALSE(texts.empty());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(nlohmann::json(tokenizer->encode(texts[i])), expected["plain"][i]) << texts[i];
    EXPECT_EQ(nlohmann::json(tokenizer->encode(texts[i], {.parse_special = false})), expected["unparsed"][i])
        << texts[i];
  }
  EXPECT_EQ(tokenizer->encode("2024").size(), 4u);
  EXPECT_EQ(tokenizer->token_id("<|im_end|>"), 2);
  EXPECT_EQ(tokenizer->vocab_size(), 49152);
}

}  // namespace
}  // namespace clover
