#include "train/evaluate/acceptance.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "data/files/error.h"
#include "model/drafters/drafter.h"

#include "tests/infer/engine/engine_fixture.h"

namespace clover::train {
namespace {

int64_t length_of(std::vector<uint8_t> supervised) {
  return prompt_length(supervised);
}

TEST(PromptLengthTest, IsWhatStandsBeforeTheAnswerOrAQuarterOfAText) {
  EXPECT_EQ(length_of({0, 0, 1, 0, 1}), 2);
  EXPECT_EQ(length_of(std::vector<uint8_t>(40, 1)), 10);
  EXPECT_EQ(length_of({1, 1}), 1);
  EXPECT_EQ(length_of({0, 0, 0}), 3);
}

class AcceptanceTest : public infer::EngineTest {
 protected:
  static constexpr int64_t max_tokens = 20;

  AcceptanceTest() : requests_(requests(9, 0)) {
    for (infer::Request& request : requests_) {
      request.stop.clear();
      request.max_tokens = max_tokens;
    }
    answers_ = plain(requests_);
    drafter_.emplace(target_->config().vocab, record_of(requests_, answers_), 3);
  }

  /// answer_of(tag): what follows the prompt in the sample.
  template <class AnswerOf>
  std::vector<EvalPrompt> prompts(const AnswerOf& answer_of) const {
    std::vector<EvalPrompt> prompts;
    for (const infer::Request& request : requests_)
      prompts.push_back({request.prompt, request.tag % 2 ? "odd" : "even", answer_of(request.tag)});
    return prompts;
  }
  template <class AnswerOf>
  TargetAnswers target_answers(const AnswerOf& answer_of, const model::FeatureTaps& taps = {},
                               const std::string& feature_file = "") const {
    return {*target_,
            *tokenizer_,
            prompts(answer_of),
            {.max_tokens = max_tokens, .max_batch = 4, .cache_bytes = 1 << 24, .feature_file = feature_file},
            taps};
  }
  std::vector<int64_t> right(int64_t tag) const { return answers_.at(tag).token_ids; }

  /// Measures with `answers` twice, and compares with an engine that verifies whole trees.
  void expect_as_with_trees(TargetAnswers& answers, model::Drafter& drafter) {
    const infer::Answers with_trees = run(requests_, options(infer::Policy::clover, 4, 4), &drafter);
    int64_t odd_tokens = 0, odd_steps = 0;
    for (const auto& [tag, answer] : with_trees) {
      if (tag % 2 == 0) continue;
      odd_tokens += std::ssize(answer.token_ids) - 1;
      odd_steps += answer.steps;
    }
    ASSERT_GT(stats_.tokens_per_step(), 1.0);
    Acceptance acceptance(answers, /*budget=*/4);
    for (int round = 0; round < 2; ++round) {
      const AcceptanceMetrics metrics = acceptance.measure(drafter);
      EXPECT_EQ(metrics.tokens_per_step, stats_.tokens_per_step());
      EXPECT_EQ(metrics.tokens, stats_.tokens);
      EXPECT_EQ(metrics.passes, stats_.passes);
      EXPECT_EQ(metrics.accepted_histogram, stats_.accepted_histogram);
      EXPECT_EQ(metrics.by_category.at("odd"),
                static_cast<double>(odd_tokens) / static_cast<double>(odd_steps));
    }
    for (int64_t tag = 0; tag < std::ssize(requests_); ++tag) EXPECT_EQ(answers.answer(tag), right(tag));
  }

  std::vector<infer::Request> requests_;
  infer::Answers answers_;
  std::optional<infer::RecordedDrafter> drafter_;
};

TEST_F(AcceptanceTest, IsThatOfWholeTreesWhateverTheSamplesAnswer) {
  const auto expect_trees = [&](int64_t confirmed, const auto& answer_of) {
    TargetAnswers answers = target_answers(answer_of);
    expect_as_with_trees(answers, *drafter_);
    EXPECT_EQ(answers.confirmed(), confirmed);
  };
  const int64_t all = std::ssize(requests_);
  expect_trees(0, [](int64_t) { return std::vector<int64_t>{}; });
  expect_trees(all, [&](int64_t tag) { return right(tag); });
  expect_trees(all, [&](int64_t tag) {  // more follows
    std::vector<int64_t> ids = right(tag);
    ids.insert(ids.end(), 30, 5);
    return ids;
  });
  expect_trees(all / 3, [&](int64_t tag) {
    std::vector<int64_t> ids = right(tag);
    if (tag % 3 == 0) ids[ids.size() / 2] ^= 1;
    if (tag % 3 == 1) ids.pop_back();
    return ids;
  });
}

// Heads that read features, of every kind, with layers in the cache and without.
TEST_F(AcceptanceTest, IsThatOfWholeTreesWithHeadsThatReadFeatures) {
  for (const std::string& kind : model::drafter_kinds()) {
    SCOPED_TRACE(kind);
    const auto drafter = model::make_drafter(kind, nlohmann::json::object(), target_->view(), {}, false, 5);
    drafter->freeze(target_->dtype());
    TargetAnswers answers = target_answers([&](int64_t tag) { return right(tag); }, drafter->taps());
    expect_as_with_trees(answers, *drafter);
  }
}

// The file has the answers of prompts without one, and of those with another, too.
TEST_F(AcceptanceTest, WithAFeatureFileNothingIsComputedAgain) {
  const model::FeatureTaps taps{.pre_norm = true};
  for (const int64_t right_answers : {9, 6, 0}) {
    const std::string file = folder_ / (std::to_string(right_answers) + ".safetensors");
    const auto answer_of = [&](int64_t tag) {
      std::vector<int64_t> ids = right(tag);
      if (tag >= right_answers) ids[1] ^= 1;
      if (tag >= right_answers && tag % 2) ids.clear();
      return ids;
    };
    TargetAnswers writes = target_answers(answer_of, taps, file);
    writes.find();
    ASSERT_TRUE(std::filesystem::exists(file));
    TargetAnswers reads = target_answers(answer_of, taps, file);
    reads.find();
    for (size_t i = 0; i < requests_.size(); ++i) {
      EXPECT_EQ(reads.answer(i), right(i));
      EXPECT_TRUE(
          at::equal(reads.recorded(i, taps)->features.pre_norm, writes.recorded(i, taps)->features.pre_norm));
    }
    EXPECT_GT(writes.feature_cache().computed_rows(), 0);
    EXPECT_EQ(reads.feature_cache().computed_rows(), 0);
    EXPECT_EQ(reads.confirmed(), right_answers);
    EXPECT_THROW(target_answers(
                     [](int64_t) {
                       return std::vector<int64_t>{5, 6};
                     },
                     taps, file),
                 data::InputError);
  }
}

TEST_F(AcceptanceTest, WithoutRoomFeaturesAreComputedEachTime) {
  const auto drafter = model::make_drafter("clover", nlohmann::json::object(), target_->view(), {}, false, 5);
  drafter->freeze(target_->dtype());
  TargetAnswers answers(*target_, *tokenizer_, prompts([&](int64_t tag) { return right(tag); }),
                        {.max_tokens = max_tokens, .max_batch = 4}, drafter->taps());
  expect_as_with_trees(answers, *drafter);
}

}  // namespace
}  // namespace clover::train
