#include "train/objective/rollout.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/temporary_folder.h"
#include "tests/train/run/tiny_run.h"
#include "train/features/feature_cache.h"

namespace clover::train {
namespace {

class RolloutTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    target_ = model::Target::load(tiny_target(), at::kFloat);
    drafter_ = model::make_drafter(GetParam(), {{"heads", 4}}, target_->view(),
                                   at::arange(0, 120, 3, at::kLong), true, 11);
    at::manual_seed(1);
    for (auto& parameter : drafter_->parameters()) parameter.add_(at::randn_like(parameter) * 0.05);
    write_counting_store(folder_.path() / "store", 4);
    store_ = data::TokenStore::open(folder_.path() / "store");
    for (int64_t i = 0; i < 4; ++i) samples_.push_back(store_->sample(data::Split::train, i));
    batch_ = pack(samples_, 4);
    std::vector<int64_t> rows;
    for (const auto& sample : samples_) rows.push_back(useful_rows(sample, 4));
    features_ = FeatureCache(*target_, drafter_->taps(), 64, 0, {}).features_of(samples_, rows, numbers_);
  }

  /// The state of every depth.
  std::vector<at::Tensor> states(const Feed& feed) {
    std::vector<at::Tensor> all;
    rollout(*drafter_, features_, batch_, feed,
            [&](int64_t depth, const model::DraftState& state, const HeadLabels& labels) {
              EXPECT_EQ(depth, std::ssize(all));
              EXPECT_EQ(state.depth, depth);
              EXPECT_TRUE(labels.scored_rows.is_same(batch_.heads[depth].scored_rows));
              all.push_back(state.hidden);
            });
    return all;
  }

  Feed feed(double share, const LossHeads& heads, int64_t step = 2) const {
    return {share, &heads, {.seed = 9, .step = step, .samples = numbers_}};
  }

  const at::NoGradGuard no_grad_;
  std::unique_ptr<model::Target> target_;
  std::shared_ptr<model::Drafter> drafter_;
  const test::TemporaryFolder folder_;
  std::optional<data::TokenStore> store_;
  std::vector<data::TokenStore::Sample> samples_;
  std::vector<int64_t> numbers_{0, 1, 2, 3};
  PackedBatch batch_;
  model::Features features_;
};

/// A row that is alone in its batch is drafted one guess after another, by hand.
TEST_P(RolloutTest, FedItsOwnGuessesItDraftsWhatDecodingDrafts) {
  const LossHeads heads(*drafter_, at::kFloat);
  const auto found = states(feed(1, heads));
  model::DraftState state =
      drafter_->prime(features_, batch_.next_ids, batch_.segments, batch_.labelled_rows, nullptr);
  for (int64_t depth = 0; depth < 4; ++depth) {
    if (depth > 0) {
      const model::OutputHead& head = drafter_->head(depth - 1);
      const at::Tensor best = drafter_->head_input(state).matmul(head.dense.t()).argmax(1);
      const at::Tensor& parents = batch_.heads[depth].parents;
      state = drafter_->extend(state, parents, head.token_map.index_select(0, best.index_select(0, parents)),
                               nullptr);
    }
    EXPECT_TRUE(at::allclose(found[depth], state.hidden, 1e-5, 1e-6)) << "depth " << depth;
  }
}

TEST_P(RolloutTest, AShareOfTheRowsIsFedGuessesAndTheOthersTheTruth) {
  const LossHeads heads(*drafter_, at::kFloat);
  const auto truth = states({}), own = states(feed(1, heads)), mixed = states(feed(0.5, heads));
  EXPECT_TRUE(mixed[0].equal(truth[0]));
  int64_t as_truth = 0, as_own = 0;
  for (int64_t row = 0; row < mixed[1].size(0); ++row) {
    const bool same_as_truth = at::allclose(mixed[1][row], truth[1][row], 1e-5, 1e-6);
    const bool same_as_own = at::allclose(mixed[1][row], own[1][row], 1e-5, 1e-6);
    EXPECT_TRUE(same_as_truth || same_as_own) << "row " << row;
    as_truth += same_as_truth && !same_as_own;
    as_own += same_as_own && !same_as_truth;
  }
  EXPECT_GT(as_truth, mixed[1].size(0) / 4);
  EXPECT_GT(as_own, mixed[1].size(0) / 4);
}

TEST_P(RolloutTest, WhichRowsIsAFunctionOfSeedAndStep) {
  const LossHeads heads(*drafter_, at::kFloat);
  const auto first = states(feed(0.5, heads)), again = states(feed(0.5, heads)),
             later = states(feed(0.5, heads, /*step=*/3));
  for (size_t depth = 0; depth < first.size(); ++depth) EXPECT_TRUE(first[depth].equal(again[depth]));
  EXPECT_FALSE(first.back().equal(later.back()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, RolloutTest, testing::Values("clover", "redrafter"),
                         [](const auto& info) { return std::string(info.param); });

TEST(DrawsTest, NumbersOfRowsDepthsStepsSamplesAndPurposesDiffer) {
  const std::vector<int64_t> samples{3, 4}, shifted{4};
  std::set<double> seen;
  int64_t count = 0;
  for (const int64_t step : {0, 1})
    for (const auto purpose : {Draws::Purpose::feed, Draws::Purpose::label})
      for (const int64_t sample : {0, 1})
        for (const int64_t t : {0, 1, 2})
          for (const int64_t depth : {0, 1})
            for (const int64_t index : {0, 1}) {
              const double u = Draws{1, step, samples}.uniform(purpose, sample, t, depth, index);
              EXPECT_TRUE(u >= 0 && u < 1);
              seen.insert(u);
              ++count;
            }
  EXPECT_EQ(std::ssize(seen), count);
  // A sample's numbers are its own, wherever it stands in a batch.
  EXPECT_EQ((Draws{1, 0, samples}.uniform(Draws::Purpose::feed, 1, 5, 1)),
            (Draws{1, 0, shifted}.uniform(Draws::Purpose::feed, 0, 5, 1)));
}

}  // namespace
}  // namespace clover::train
