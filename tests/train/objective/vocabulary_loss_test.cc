#include "train/objective/vocabulary_loss.h"

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

namespace clover::train {
namespace {

struct Case {
  at::Tensor hidden;
  LossHead head;
  VocabularyTargets targets;
};

Case random_case(int64_t rows, int64_t width, int64_t vocab, bool bias = false) {
  at::manual_seed(7);
  Case made{at::randn({rows, width}),
            {at::randn({vocab, width})},
            {at::randint(0, vocab, {rows}, at::kLong), at::randn({rows, 6}), at::randn({vocab, 6})}};
  if (bias) made.head.bias = at::randn({vocab});
  return made;
}

/// The loss by its definition, differentiable, in fp64: one formula a term, whole rows, no chunks.
at::Tensor plain(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                 const VocabularyTargets& targets, const LossTerms& terms) {
  at::Tensor logits = hidden.matmul(weight.t());
  if (bias.defined()) logits = logits + bias;
  const at::Tensor q = logits.softmax(1), log_q = q.log();
  const at::Tensor p =
      targets.teacher.to(at::kDouble).matmul(targets.teacher_weight.to(at::kDouble).t()).softmax(1);
  const at::Tensor accepted = at::minimum(p, q).sum(1);
  const auto one_hot = at::one_hot(targets.labels, weight.size(0)).to(at::kDouble);
  return terms[LossTerm::cross_entropy] * -(one_hot * log_q).sum() +
         terms[LossTerm::soft_labels] * -(p * log_q).sum() +
         terms[LossTerm::total_variation] * (1 - accepted).sum() +
         terms[LossTerm::lk] * -accepted.log().sum();
}

class TermsTest : public testing::TestWithParam<const char*> {};

TEST_P(TermsTest, AgreeWithTheirDefinitionInValueAndGradientForEveryChunking) {
  const LossTerms terms = LossTerms::parse(GetParam());
  for (const bool bias : {false, true}) {
    const Case given = random_case(13, 8, 37, bias);
    const auto exact = [](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.to(at::kDouble).requires_grad_(true) : tensor;
    };
    const at::Tensor hidden64 = exact(given.hidden), weight64 = exact(given.head.weight),
                     bias64 = exact(given.head.bias);
    const at::Tensor expected = plain(hidden64, weight64, bias64, given.targets, terms);
    (expected * 0.3).backward();
    for (const int64_t chunk : {1, 5, 13, 64}) {
      at::Tensor hidden = given.hidden.clone().requires_grad_(true);
      HeadGradient own{at::zeros_like(given.head.weight), bias ? at::zeros({37}) : at::Tensor()};
      const auto found =
          chunked_vocabulary_loss(hidden, given.head, given.targets, terms, &own, /*scale=*/0.3, chunk);
      (found.sum * 0.3).backward();
      EXPECT_NEAR(found.sum.item<double>(), expected.item<double>(), 1e-3) << "chunk " << chunk;
      EXPECT_TRUE(at::allclose(hidden.grad(), hidden64.grad().to(at::kFloat), 1e-4, 1e-5)) << chunk;
      EXPECT_TRUE(at::allclose(own.weight, weight64.grad().to(at::kFloat), 1e-4, 1e-5)) << chunk;
      if (bias) {
        EXPECT_TRUE(at::allclose(own.bias, bias64.grad().to(at::kFloat), 1e-4, 1e-5)) << chunk;
      }
    }
  }
}

TEST_P(TermsTest, GradientIsTheSlopeOfTheLoss) {
  const LossTerms terms = LossTerms::parse(GetParam());
  const Case given = random_case(3, 4, 11);
  at::Tensor hidden = given.hidden.clone().requires_grad_(true);
  chunked_vocabulary_loss(hidden, given.head, given.targets, terms).sum.backward();
  const double step = 1e-2;
  const auto loss_at = [&](int64_t row, int64_t column, double by) {
    at::Tensor moved = given.hidden.clone();
    moved[row][column] += by;
    const auto part = chunked_vocabulary_loss(moved, given.head, given.targets, terms);
    return terms.weighted_sum(part.terms);
  };
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t column = 0; column < 4; ++column) {
      const double slope = (loss_at(row, column, step) - loss_at(row, column, -step)) / (2 * step);
      EXPECT_NEAR(hidden.grad()[row][column].item<double>(), slope, 1e-2) << row << "," << column;
    }
  }
}

TEST_P(TermsTest, NoRowsIsNoLoss) {
  const Case given = random_case(0, 4, 5);
  const auto loss =
      chunked_vocabulary_loss(given.hidden, given.head, given.targets, LossTerms::parse(GetParam()));
  EXPECT_EQ(loss.sum.item<double>(), 0);
  EXPECT_EQ(loss.ranks.numel(), 0);
}

INSTANTIATE_TEST_SUITE_P(Losses, TermsTest,
                         testing::Values("cross-entropy", "soft-labels", "total-variation", "lk",
                                         "0.5 cross-entropy + 2 soft-labels + lk + 0.25 total-variation"));

TEST(VocabularyLossTest, EachTermIsReportedBeforeItsWeight) {
  const Case given = random_case(9, 8, 21);
  const auto all = chunked_vocabulary_loss(given.hidden, given.head, given.targets,
                                           LossTerms::parse("3 cross-entropy + 2 soft-labels"));
  for (const LossTerm term : {LossTerm::cross_entropy, LossTerm::soft_labels}) {
    const size_t k = static_cast<size_t>(term);
    const auto one = chunked_vocabulary_loss(given.hidden, given.head, given.targets,
                                             LossTerms::parse(loss_term_names[k]));
    EXPECT_NEAR(all.terms[k], one.sum.item<double>(), 1e-4);
  }
  EXPECT_NEAR(all.sum.item<double>(), 3 * all.terms[0] + 2 * all.terms[1], 1e-3);
}

TEST(VocabularyLossTest, ProductsInBf16GiveTheSameUpToItsRounding) {
  const LossTerms terms = LossTerms::parse("cross-entropy + soft-labels + lk");
  const Case given = random_case(40, 8, 21, /*bias=*/true);
  const auto run = [&](at::ScalarType dtype, HeadGradient& own, at::Tensor& hidden) {
    VocabularyTargets targets = given.targets;
    targets.teacher_weight = targets.teacher_weight.to(dtype);
    hidden = given.hidden.clone().requires_grad_(true);
    own = {at::zeros_like(given.head.weight), at::zeros_like(given.head.bias)};
    const LossHead head{given.head.weight.to(dtype), given.head.bias};
    const auto loss = chunked_vocabulary_loss(hidden, head, targets, terms, &own, 1, /*chunk=*/16);
    loss.sum.backward();
    return loss.sum.item<double>();
  };
  HeadGradient exact, rounded;
  at::Tensor exact_hidden, rounded_hidden;
  const double expected = run(at::kFloat, exact, exact_hidden),
               found = run(at::kBFloat16, rounded, rounded_hidden);
  EXPECT_NEAR(found, expected, 1e-2 * expected);
  const auto close = [](const at::Tensor& one, const at::Tensor& other) {
    return (one - other).norm().item<double>() < 0.03 * other.norm().item<double>();
  };
  EXPECT_TRUE(close(rounded_hidden.grad(), exact_hidden.grad()));
  EXPECT_TRUE(close(rounded.weight, exact.weight));
  EXPECT_TRUE(close(rounded.bias, exact.bias));
}

/// A guess that the target would make for certain is what a hard label is: -log sum min(p, q) is -log q_y
/// then.
TEST(VocabularyLossTest, AgainstACertainTargetEveryLogarithmIsTheCrossEntropy) {
  Case given = random_case(5, 8, 6);
  given.targets.teacher_weight = at::eye(6) * 200;
  given.targets.teacher = at::one_hot(given.targets.labels, 6).to(at::kFloat);
  const auto value = [&](const char* loss) {
    return chunked_vocabulary_loss(given.hidden, given.head, given.targets, LossTerms::parse(loss))
        .sum.item<double>();
  };
  EXPECT_NEAR(value("soft-labels"), value("cross-entropy"), 1e-4);
  EXPECT_NEAR(value("lk"), value("cross-entropy"), 1e-4);
}

TEST(VocabularyLossTest, DrawnLabelsAreOnAverageTheSoftLabels) {
  Case given = random_case(2, 8, 5);
  constexpr int64_t draws = 20000;
  given.targets.uniforms = (at::arange(2 * draws, at::kFloat).view({2, draws}) % draws + 0.5) / draws;
  at::Tensor drawn = given.hidden.clone().requires_grad_(true),
             soft = given.hidden.clone().requires_grad_(true);
  const auto found =
      chunked_vocabulary_loss(drawn, given.head, given.targets, LossTerms::parse("cross-entropy"));
  found.sum.backward();
  given.targets.uniforms.reset();
  const auto expected =
      chunked_vocabulary_loss(soft, given.head, given.targets, LossTerms::parse("soft-labels"));
  expected.sum.backward();
  EXPECT_NEAR(found.sum.item<double>(), expected.sum.item<double>(), 5e-3);
  EXPECT_TRUE(at::allclose(drawn.grad(), soft.grad(), 0, 1e-3));
  EXPECT_TRUE(found.ranks.equal(expected.ranks));  // of the data's labels either way
}

TEST(VocabularyLossTest, ADrawnLabelIsTheTokenWhoseShareHoldsTheNumber) {
  // P = (1/2, 0, 1/4, 1/4): below 1/2 token 0, from there token 2, from 3/4 token 3.
  Case given = random_case(4, 3, 4);
  const at::Tensor p = at::tensor({0.5f, 0.f, 0.25f, 0.25f});
  given.targets.teacher = p.log().clamp_min(-200).expand({4, 4}).contiguous();
  given.targets.teacher_weight = at::eye(4);
  given.targets.uniforms = at::tensor({0.f, 0.49f, 0.51f, 0.99f}).view({4, 1});
  const LossTerms terms = LossTerms::parse("cross-entropy");
  const double drawn = chunked_vocabulary_loss(given.hidden, given.head, given.targets, terms).terms[0];
  given.targets.uniforms.reset();
  given.targets.labels = at::tensor({0, 0, 2, 3}, at::kLong);
  EXPECT_NEAR(drawn, chunked_vocabulary_loss(given.hidden, given.head, given.targets, terms).terms[0], 1e-5);
}

TEST(VocabularyLossTest, RanksCountBetterLogitsAndEqualOnesBefore) {
  const at::Tensor logits =
      at::tensor({1.f, 3.f, 2.f, 3.f, 5.f, 5.f, 5.f, 5.f, 0.f, 1.f, 2.f, 3.f}).view({3, 4});
  const at::Tensor labels = at::tensor({3, 2, 0}, at::kLong);
  EXPECT_TRUE(label_ranks(logits, labels).equal(at::tensor({1, 2, 3}, at::kLong)));
}

TEST(VocabularyLossTest, ReportsRanksOfItsOwnLogits) {
  const Case given = random_case(9, 8, 21, /*bias=*/true);
  const at::Tensor expected =
      label_ranks(given.hidden.matmul(given.head.weight.t()) + given.head.bias, given.targets.labels);
  for (const LossTerms& terms : {LossTerms(), LossTerms::parse("cross-entropy")}) {
    const auto loss = chunked_vocabulary_loss(given.hidden, given.head, given.targets, terms, nullptr, 1, 4);
    EXPECT_TRUE(loss.ranks.equal(expected));
  }
}

TEST(VocabularyLossTest, BestGuessesAreTheArgMaxOfItsLogits) {
  const Case given = random_case(9, 8, 21, /*bias=*/true);
  const at::Tensor logits = given.hidden.matmul(given.head.weight.t()) + given.head.bias;
  for (const int64_t chunk : {1, 4, 64})
    EXPECT_TRUE(best_guesses(given.hidden, given.head, chunk).equal(logits.argmax(1)));
}

TEST(VocabularyLossTest, RefusesALabelOutsideTheVocabulary) {
  Case given = random_case(1, 4, 5);
  given.targets.labels = at::tensor({5}, at::kLong);
  EXPECT_THROW(
      chunked_vocabulary_loss(given.hidden, given.head, given.targets, LossTerms::parse("cross-entropy")),
      c10::Error);
}

/// The largest tensor that this thread makes on the CPU while it lives, in bytes.
struct LargestAllocation : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    largest = std::max(largest, bytes);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t largest = 0;
};

TEST(VocabularyLossTest, LogitsExistForOneChunkOfRowsAtATime) {
  const LossTerms terms = LossTerms::parse("cross-entropy + soft-labels + lk + total-variation");
  for (const int64_t rows : {64, 512}) {
    Case given = random_case(rows, 8, 1000);
    given.hidden.requires_grad_(true);
    HeadGradient own{at::zeros_like(given.head.weight), {}};
    const auto meter = std::make_shared<LargestAllocation>();
    {
      const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
      chunked_vocabulary_loss(given.hidden, given.head, given.targets, terms, &own, 1, /*chunk=*/16)
          .sum.backward();
    }
    EXPECT_GE(meter->largest, 16 * 1000 * 4);
    EXPECT_LT(meter->largest, 17 * 1000 * 4) << rows << " rows";
  }
}

}  // namespace
}  // namespace clover::train
