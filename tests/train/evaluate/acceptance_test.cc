#include "train/evaluate/acceptance.h"

#include <gtest/gtest.h>

#include <optional>

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
  Acceptance acceptance(const AnswerOf& answer_of) const {
    std::vector<EvalPrompt> prompts;
    for (const infer::Request& request : requests_)
      prompts.push_back({request.prompt, request.tag % 2 ? "odd" : "even", answer_of(request.tag)});
    return {*target_, *tokenizer_, prompts, {.max_tokens = max_tokens, .budget = 4, .max_batch = 4}};
  }

  std::vector<infer::Request> requests_;
  infer::Answers answers_;
  std::optional<infer::RecordedDrafter> drafter_;
};

// The oracle is an engine that verifies whole trees.
TEST_F(AcceptanceTest, IsThatOfWholeTreesWhateverTheSamplesAnswer) {
  const infer::Answers with_trees = run(requests_, options(infer::Policy::clover, 4, 4), &*drafter_);
  const infer::EngineStats trees = stats_;
  const size_t drafts_of_trees = drafter_->rows_evaluated.size();
  int64_t odd_tokens = 0, odd_steps = 0;
  for (const auto& [tag, answer] : with_trees) {
    if (tag % 2 == 0) continue;
    odd_tokens += std::ssize(answer.token_ids) - 1;
    odd_steps += answer.steps;
  }
  ASSERT_GT(trees.tokens_per_step(), 1.2);

  const auto right = [&](int64_t tag) { return answers_.at(tag).token_ids; };
  enum class Drafts { once, at_least_once };
  const auto expect_trees = [&](Acceptance acceptance, Drafts drafts) {
    for (int round = 0; round < 2; ++round) {  // the second knows the answers
      drafter_->rows_evaluated.clear();
      const AcceptanceMetrics metrics = acceptance.measure(*drafter_);
      if (drafts == Drafts::once || round == 1) {
        EXPECT_EQ(drafter_->rows_evaluated.size(), drafts_of_trees);
      }
      EXPECT_EQ(metrics.tokens_per_step, trees.tokens_per_step());
      EXPECT_EQ(metrics.tokens, trees.tokens);
      EXPECT_EQ(metrics.passes, trees.passes);
      EXPECT_EQ(metrics.accepted_histogram, trees.accepted_histogram);
      EXPECT_EQ(metrics.by_category.at("odd"),
                static_cast<double>(odd_tokens) / static_cast<double>(odd_steps));
      EXPECT_EQ(metrics.mismatches, 0);
    }
    for (int64_t tag = 0; tag < std::ssize(requests_); ++tag)
      EXPECT_EQ(acceptance.answers()[tag], right(tag));
  };
  expect_trees(acceptance([](int64_t) { return std::vector<int64_t>{}; }), Drafts::once);
  expect_trees(acceptance(right), Drafts::once);
  expect_trees(acceptance([&](int64_t tag) {  // more follows
                 std::vector<int64_t> ids = right(tag);
                 ids.insert(ids.end(), 30, 5);
                 return ids;
               }),
               Drafts::once);
  expect_trees(acceptance([&](int64_t tag) {
                 std::vector<int64_t> ids = right(tag);
                 if (tag % 3 == 0) ids[ids.size() / 2] ^= 1;
                 if (tag % 3 == 1) ids.pop_back();
                 return ids;
               }),
               Drafts::at_least_once);
}

}  // namespace
}  // namespace clover::train
