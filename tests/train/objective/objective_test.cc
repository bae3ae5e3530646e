#include "train/objective/objective.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/temporary_folder.h"
#include "tests/train/run/tiny_run.h"
#include "train/features/feature_cache.h"
#include "train/objective/head_accuracy.h"
#include "train/optimiser/adamw.h"

namespace clover::train {
namespace {

struct Kind {
  std::string kind;
  nlohmann::json settings;
};

class ObjectiveTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    target_ = model::Target::load(tiny_target(), at::kFloat);
    drafter_ = model::make_drafter(GetParam().kind, GetParam().settings, target_->view(), {}, true, 11);
    // Random values instead of the initial zeros, so that every parameter matters.
    at::NoGradGuard no_grad;
    at::manual_seed(1);
    for (auto& parameter : drafter_->parameters()) parameter.add_(at::randn_like(parameter) * 0.02);
    write_counting_store(folder_ / "store", 6);
    store_ = data::TokenStore::open(folder_ / "store");
    for (int64_t i = 0; i < 6; ++i) samples_.push_back(store_->sample(data::Split::train, i));
  }

  /// Loss and gradients of all samples, computed in micro-batches of `size`, with the label counts of all
  /// samples.
  std::pair<double, std::map<std::string, at::Tensor>> in_groups_of(size_t size) {
    const int64_t heads = drafter_->max_depth();
    const LabelMap labels({}, target_->config().vocab);
    const auto counts = count_draft_vocab_labels(samples_, heads, labels);
    std::vector<double> scale;
    for (int64_t i = 0; i < heads; ++i) scale.push_back(std::pow(0.8, i) / static_cast<double>(counts[i]));
    for (auto& [name, value] : drafter_->named_parameters()) value.mutable_grad() = at::Tensor();
    double sum = 0;
    metrics_.assign(heads, {});
    for (size_t begin = 0; begin < samples_.size(); begin += size) {
      const auto group = std::span(samples_).subspan(begin, std::min(size, samples_.size() - begin));
      at::Tensor loss = loss_of(group, labels, scale);
      loss.backward();
      sum += loss.item<double>();
    }
    std::map<std::string, at::Tensor> gradients;
    for (const auto& [name, value] : drafter_->named_parameters()) {
      gradients[name] = value.grad().defined() ? value.grad().clone() : at::zeros_like(value);
    }
    return {sum, gradients};
  }

  at::Tensor loss_of(std::span<const data::TokenStore::Sample> group, const LabelMap& labels,
                     const std::vector<double>& scale) {
    std::vector<int64_t> rows, keys(group.size(), -1);
    for (const auto& sample : group) rows.push_back(useful_rows(sample, drafter_->max_depth()));
    FeatureCache source(*target_, drafter_->features(), 64, 0, {});
    return teacher_forced_loss(*drafter_, source.of(group, rows, keys), pack(group, drafter_->max_depth()),
                               labels, loss_weight(*drafter_, at::kFloat), scale, metrics_);
  }

  std::unique_ptr<model::Target> target_;
  std::shared_ptr<model::Drafter> drafter_;
  const test::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
  std::optional<data::TokenStore> store_;
  std::vector<data::TokenStore::Sample> samples_;
  std::vector<HeadMetrics> metrics_;
};

TEST_P(ObjectiveTest, PackingAndAccumulationChangeNothingButRounding) {
  const auto [whole, whole_gradients] = in_groups_of(6);
  const auto whole_figures = metrics_;
  for (const size_t size : {1, 2, 4}) {
    const auto [sum, gradients] = in_groups_of(size);
    EXPECT_NEAR(sum, whole, 1e-4) << "groups of " << size;
    for (const auto& [name, gradient] : gradients) {
      EXPECT_TRUE(at::allclose(gradient, whole_gradients.at(name), 1e-3, 1e-5))
          << name << " in groups of " << size;
    }
    for (size_t i = 0; i < metrics_.size(); ++i) {
      EXPECT_EQ(metrics_[i].labels, whole_figures[i].labels);
      EXPECT_EQ(metrics_[i].hits, whole_figures[i].hits);
    }
  }
}

TEST_P(ObjectiveTest, EveryParameterLearns) {
  for (const auto& [name, gradient] : in_groups_of(6).second)
    EXPECT_GT(gradient.abs().max().item<double>(), 0) << name;
}

TEST_P(ObjectiveTest, GradientIsTheSlopeAlongIt) {
  const auto [loss, gradients] = in_groups_of(6);
  double square = 0;
  for (const auto& [name, gradient] : gradients) square += gradient.square().sum().item<double>();
  const double step = 1e-3 / std::sqrt(square);
  at::NoGradGuard no_grad;
  const auto moved = [&](double by) {
    for (const auto& [name, value] : drafter_->named_parameters()) value.add_(gradients.at(name), by);
    at::AutoGradMode grad(true);
    return in_groups_of(6).first;
  };
  const double up = moved(step), down = moved(-2 * step);
  EXPECT_NEAR((up - down) / (2 * step), square, 0.02 * square);
}

TEST_P(ObjectiveTest, OverfitsOneBatch) {
  const double before = in_groups_of(6).first;
  data::NamedTensors parameters;
  for (const auto& [name, value] : drafter_->named_parameters()) parameters.emplace_back(name, value);
  AdamW adam(parameters, {});
  double after = before;
  for (int step = 0; step < 40; ++step) {
    after = in_groups_of(6).first;
    adam.step(0.02);
  }
  EXPECT_LT(after, 0.2 * before);
}

/// A teacher-forced packed batch computes the same as step-by-step decoding with the cache on the same
/// tokens.
TEST_P(ObjectiveTest, TeacherForcedIsStepwise) {
  const LabelMap labels({}, target_->config().vocab);
  const auto& sample = samples_[0];
  const std::vector<data::TokenStore::Sample> one{sample};
  const std::vector<int64_t> rows{useful_rows(sample, drafter_->max_depth())}, keys{-1};
  const PackedBatch batch = pack(one, drafter_->max_depth());
  const model::FeatureTaps taps = drafter_->features();
  FeatureCache source(*target_, taps, 64, 0, {});
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> packed;
  model::DraftState state = drafter_->prime(source.of(one, rows, keys), batch.next_ids, batch.segments,
                                            batch.labelled_rows, nullptr);
  for (size_t i = 0; i < batch.heads.size(); ++i) {
    if (i > 0) state = drafter_->extend(state, batch.heads[i].parents, batch.heads[i].ids, nullptr);
    packed.push_back(drafter_->output(state));
  }

  drafter_->freeze(at::kFloat);
  model::KvCache cache(target_->kv_shape(drafter_->kv_layers()), 8, 16);
  const int32_t sequence = cache.open();
  const int64_t* labelled_rows = batch.labelled_rows.const_data_ptr<int64_t>();
  int64_t f = 0;
  for (int32_t t = 0; t < rows[0]; ++t) {
    model::RowBatch read;
    read.add(sample.ids[t], sequence, -1);
    const auto features = target_->forward(read, cache, taps).features;
    const std::vector<int32_t> kept{0};
    cache.keep(sequence, kept, target_->config().layers);
    const model::Segment segment{sequence, t, 1};
    model::DraftKv kv{&cache, target_->config().layers, cache.place({&segment, 1})};
    const at::Tensor zero = at::zeros({1}, at::kLong);
    model::DraftState step =
        drafter_->prime(features, at::tensor({sample.ids[t + 1]}, at::kLong), {}, zero, &kv);
    if (f == batch.labelled_rows.numel() || labelled_rows[f] != t) continue;
    for (size_t i = 0; i < packed.size() && t + 2 + static_cast<int64_t>(i) < std::ssize(sample.ids); ++i) {
      if (i > 0) step = drafter_->extend(step, zero, at::tensor({sample.ids[t + 1 + i]}, at::kLong), &kv);
      // Row t is still the f-th row at every depth here: labels run to the end of the sample, rows drop off
      // from there.
      EXPECT_TRUE(at::allclose(drafter_->output(step)[0].to(at::kFloat), packed[i][f], 1e-3, 1e-3))
          << "row " << t << " head " << i;
    }
    ++f;
  }
  EXPECT_EQ(f, batch.labelled_rows.numel());
}

TEST_P(ObjectiveTest, ScoresItsOwnGuessesAndTheTruthApart) {
  const LabelMap labels({}, target_->config().vocab);
  const std::vector<int64_t> keys(samples_.size(), -1);
  std::vector<int64_t> rows;
  for (const auto& sample : samples_) rows.push_back(useful_rows(sample, drafter_->max_depth()));
  FeatureCache source(*target_, drafter_->features(), 64, 0, {});
  const PackedBatch batch = pack(samples_, drafter_->max_depth());
  const auto features = source.of(samples_, rows, keys);
  in_groups_of(6);
  std::vector<HeadMetrics> truth(drafter_->max_depth()), own(drafter_->max_depth());
  for (const Feed feed : {Feed::truth, Feed::own_guesses}) {
    for (const auto& label :
         score_labels(*drafter_, features, batch, labels, loss_weight(*drafter_, at::kFloat), feed)) {
      HeadMetrics& head = (feed == Feed::truth ? truth : own)[label.head];
      ++head.labels;
      if (label.rank < top_ranks) ++head.hits[label.rank];
    }
  }
  for (size_t i = 0; i < truth.size(); ++i) {
    EXPECT_EQ(truth[i].labels, metrics_[i].labels);
    EXPECT_EQ(truth[i].hits, metrics_[i].hits);  // the training loss counts the same ranks
    EXPECT_EQ(own[i].labels, truth[i].labels);
  }
  EXPECT_EQ(own[0].hits, truth[0].hits);  // the first head is fed with the same token either way
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ObjectiveTest,
    testing::Values(Kind{"clover", {{"heads", 3}}}, Kind{"medusa", {{"heads", 3}}},
                    Kind{"clover", {{"heads", 2}, {"regression", "concat"}, {"block", "none"}}},
                    Kind{"clover", {{"heads", 2}, {"gate_groups", 4}, {"block", "attention"}}},
                    Kind{"clover", {{"heads", 2}, {"tap_layers", {1}}}}),
    [](const auto& info) {
      std::string name = info.param.kind + std::to_string(info.index);
      return name;
    });

TEST(LabelCountTest, LabelsOutsideTheDraftVocabularyAreNoPartOfTheMean) {
  const std::vector<int32_t> ids{0, 1, 2, 3, 4, 5};
  const std::vector<uint8_t> mask{0, 0, 1, 1, 1, 1};
  const std::vector<data::TokenStore::Sample> samples{{ids, mask, ""}};
  EXPECT_EQ(count_draft_vocab_labels(samples, 2, LabelMap({}, 6)), (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(count_draft_vocab_labels(samples, 2, LabelMap(at::tensor({2, 4}, at::kLong), 6)),
            (std::vector<int64_t>{2, 1}));
}

TEST(HeadFiguresTest, ALabelThatCannotBeSaidCountsAsWrong) {
  HeadMetrics metrics;
  metrics.labels = 4;
  metrics.in_draft_vocab = 3;
  metrics.hits = {1, 1};
  EXPECT_DOUBLE_EQ(metrics.top(1), 0.25);
  EXPECT_DOUBLE_EQ(metrics.top(5), 0.5);
}

}  // namespace
}  // namespace clover::train
