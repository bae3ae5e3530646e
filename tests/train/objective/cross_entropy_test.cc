#include "train/objective/cross_entropy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace clover::train {
namespace {

struct Case {
  at::Tensor hidden, weight, labels;
};

Case random_case(int64_t rows, int64_t width, int64_t vocab) {
  at::manual_seed(7);
  return {at::randn({rows, width}), at::randn({vocab, width}), at::randint(0, vocab, {rows}, at::kLong)};
}

TEST(CrossEntropyTest, AgreesWithAtenInValueAndGradientForEveryChunking) {
  const Case given = random_case(13, 8, 37);
  at::Tensor expected_hidden = given.hidden.clone().requires_grad_(true);
  const at::Tensor expected =
      at::cross_entropy_loss(expected_hidden.matmul(given.weight.t()), given.labels, {}, at::Reduction::Sum);
  (expected * 0.3).backward();
  for (const int64_t chunk : {1, 5, 13, 64}) {
    at::Tensor hidden = given.hidden.clone().requires_grad_(true);
    const CrossEntropy entropy = chunked_cross_entropy(hidden, given.weight, given.labels, chunk);
    (entropy.sum * 0.3).backward();
    EXPECT_NEAR(entropy.sum.item<double>(), expected.item<double>(), 1e-3) << "chunk " << chunk;
    EXPECT_TRUE(at::allclose(hidden.grad(), expected_hidden.grad(), 1e-4, 1e-5)) << "chunk " << chunk;
  }
}

TEST(CrossEntropyTest, GradientIsTheSlopeOfTheLoss) {
  const Case given = random_case(3, 4, 11);
  at::Tensor hidden = given.hidden.clone().requires_grad_(true);
  chunked_cross_entropy(hidden, given.weight, given.labels).sum.backward();
  const float step = 1e-2f;
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t column = 0; column < 4; ++column) {
      at::Tensor up = given.hidden.clone(), down = given.hidden.clone();
      up[row][column] += step;
      down[row][column] -= step;
      const double slope = (chunked_cross_entropy(up, given.weight, given.labels).sum.item<double>() -
                            chunked_cross_entropy(down, given.weight, given.labels).sum.item<double>()) /
                           (2 * step);
      EXPECT_NEAR(hidden.grad()[row][column].item<double>(), slope, 5e-3) << row << "," << column;
    }
  }
}

TEST(CrossEntropyTest, RanksCountBetterLogitsAndEqualOnesBefore) {
  const at::Tensor logits =
      at::tensor({1.f, 3.f, 2.f, 3.f, 5.f, 5.f, 5.f, 5.f, 0.f, 1.f, 2.f, 3.f}).view({3, 4});
  const at::Tensor labels = at::tensor({3, 2, 0}, at::kLong);
  EXPECT_TRUE(label_ranks(logits, labels).equal(at::tensor({1, 2, 3}, at::kLong)));
}

TEST(CrossEntropyTest, ReportsRanksOfItsOwnLogits) {
  const Case given = random_case(9, 8, 21);
  const auto entropy = chunked_cross_entropy(given.hidden, given.weight, given.labels, 4);
  EXPECT_TRUE(entropy.ranks.equal(label_ranks(given.hidden.matmul(given.weight.t()), given.labels)));
}

TEST(CrossEntropyTest, NoRowsIsNoLoss) {
  const auto entropy = chunked_cross_entropy(at::zeros({0, 4}), at::randn({5, 4}), at::zeros({0}, at::kLong));
  EXPECT_EQ(entropy.sum.item<double>(), 0);
  EXPECT_EQ(entropy.ranks.numel(), 0);
}

TEST(CrossEntropyTest, RefusesALabelOutsideTheVocabulary) {
  EXPECT_THROW(chunked_cross_entropy(at::zeros({1, 4}), at::randn({5, 4}), at::tensor({5}, at::kLong)),
               c10::Error);
}

}  // namespace
}  // namespace clover::train
