#include "train/objective/objective.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tests/model/drafters/own_layers.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/objective/plain_losses.h"
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
    Objective objective(*drafter_, target_->view(), settings_);
    const auto scale = head_scale();
    for (auto& [name, value] : drafter_->named_parameters()) value.mutable_grad() = at::Tensor();
    double sum = 0;
    metrics_.assign(scale.size(), {});
    for (size_t begin = 0; begin < samples_.size(); begin += size) {
      const auto group = std::span(samples_).subspan(begin, std::min(size, samples_.size() - begin));
      std::vector<int64_t> numbers(group.size());
      std::iota(numbers.begin(), numbers.end(), static_cast<int64_t>(begin));
      const Draws draws{.seed = 5, .step = 3, .samples = numbers};
      const Feed feed{self_feed_, &objective.heads(), draws};
      const Batch batch = batch_of(group, objective.wants_teacher_row(), objective.taps());
      const at::Tensor loss = objective.loss(batch.features, batch.packed, feed, draws, scale, metrics_);
      loss.backward();
      sum += loss.item<double>();
    }
    return {sum, gradients()};
  }

  std::vector<double> head_scale() const {
    const LabelMap labels(drafter_->head(0).token_map, target_->config().vocab);
    std::vector<double> scale;
    for (const int64_t count : count_draft_vocab_labels(samples_, drafter_->trained_depth(), labels))
      scale.push_back(std::pow(0.8, scale.size()) / static_cast<double>(count));
    return scale;
  }

  std::map<std::string, at::Tensor> gradients() const {
    std::map<std::string, at::Tensor> gradients;
    for (const auto& [name, value] : drafter_->named_parameters())
      gradients[name] = value.grad().defined() ? value.grad().clone() : at::zeros_like(value);
    return gradients;
  }

  struct Batch {
    PackedBatch packed;
    model::Features features;
  };
  Batch batch_of(std::span<const data::TokenStore::Sample> group, TeacherRow teacher,
                 const model::FeatureTaps& taps) const {
    std::vector<int64_t> rows, keys(group.size(), -1);
    for (const auto& sample : group) rows.push_back(useful_rows(sample, drafter_->trained_depth(), teacher));
    FeatureCache source(*target_, taps, 64, 0, {});
    return {pack(group, drafter_->trained_depth(), teacher), source.features_of(group, rows, keys)};
  }

  ObjectiveSettings settings_;
  double self_feed_ = 0;
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
  // No norm stands between EAGLE's layer and the LM head, so it takes smaller steps.
  const double rate = GetParam().kind == "eagle" ? 0.004 : 0.02;
  for (int step = 0; step < 40; ++step) {
    after = in_groups_of(6).first;
    adam.step(rate);
  }
  EXPECT_LT(after, 0.2 * before);
}

/// A teacher-forced packed batch computes the same as step-by-step decoding with the cache on the same
/// tokens.
TEST_P(ObjectiveTest, TeacherForcedIsStepwise) {
  const LabelMap labels({}, target_->config().vocab);
  const auto& sample = samples_[0];
  const std::vector<data::TokenStore::Sample> one{sample};
  const std::vector<int64_t> rows{useful_rows(sample, drafter_->trained_depth())}, keys{-1};
  const PackedBatch batch = pack(one, drafter_->trained_depth());
  const model::FeatureTaps taps = drafter_->taps();
  FeatureCache source(*target_, taps, 64, 0, {});
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> packed;
  model::DraftState state = drafter_->prime(source.features_of(one, rows, keys), batch.next_ids,
                                            batch.segments, batch.labelled_rows, nullptr);
  for (size_t i = 0; i < batch.heads.size(); ++i) {
    if (i > 0) state = drafter_->extend(state, batch.heads[i].parents, batch.heads[i].ids, nullptr);
    packed.push_back(drafter_->head_input(state));
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
    cache.keep_rows(sequence, kept, target_->config().layers);
    const model::Segment segment{sequence, t, 1};
    model::DraftKv kv = test::own_layers(*drafter_, cache, target_->config().layers, segment);
    const at::Tensor zero = at::zeros({1}, at::kLong);
    model::DraftState step =
        drafter_->prime(features, at::tensor({sample.ids[t + 1]}, at::kLong), {}, zero, &kv);
    if (f == batch.labelled_rows.numel() || labelled_rows[f] != t) continue;
    for (size_t i = 0; i < packed.size() && t + 2 + static_cast<int64_t>(i) < std::ssize(sample.ids); ++i) {
      if (i > 0) step = drafter_->extend(step, zero, at::tensor({sample.ids[t + 1 + i]}, at::kLong), &kv);
      // Row t is still the f-th row at every depth here: labels run to the end of the sample, rows drop off
      // from there.
      EXPECT_TRUE(at::allclose(drafter_->head_input(step)[0].to(at::kFloat), packed[i][f], 1e-3, 1e-3))
          << "row " << t << " head " << i;
    }
    ++f;
  }
  EXPECT_EQ(f, batch.labelled_rows.numel());
}

TEST_P(ObjectiveTest, ScoresItsOwnGuessesAndTheTruthApart) {
  const LabelMap labels({}, target_->config().vocab);
  const Batch batch = batch_of(samples_, TeacherRow::no, drafter_->taps());
  in_groups_of(6);
  const LossHeads heads(*drafter_, at::kFloat);
  std::vector<HeadMetrics> truth(drafter_->trained_depth()), own(drafter_->trained_depth());
  for (const double share : {0., 1.}) {
    const Feed feed{.own_guess_share = share, .heads = &heads};
    for (const auto& label : score_labels(*drafter_, batch.features, batch.packed, labels, heads, feed)) {
      HeadMetrics& head = (share > 0 ? own : truth)[label.head];
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

/// Every term, and their gradients of every parameter, a head's own among them, are those of plain formulas.
TEST_P(ObjectiveTest, TermsAreTheirFormulasSummedOverTheRows) {
  const at::Tensor lm_head = target_->view().head->unpack().to(at::kFloat);
  const auto scale = head_scale();
  for (const char* loss : {"cross-entropy", "soft-labels", "total-variation", "lk", "smooth-l1",
                           "cross-entropy + 0.5 soft-labels + 2 smooth-l1"}) {
    settings_.terms = LossTerms::parse(loss);
    if (settings_.terms.has(LossTerm::smooth_l1) && drafter_->head(0).dense.size(1) != lm_head.size(1))
      continue;
    const auto [found, found_gradients] = in_groups_of(4);
    const Batch batch =
        batch_of(samples_, TeacherRow::yes, Objective(*drafter_, target_->view(), settings_).taps());
    for (auto& [name, value] : drafter_->named_parameters()) value.mutable_grad() = at::Tensor();
    at::Tensor expected = at::zeros({}, at::kDouble);
    std::vector<TermValues> terms(scale.size());
    for (size_t k = 0; k < loss_term_count; ++k) {
      const LossTerm term = static_cast<LossTerm>(k);
      if (!settings_.terms.has(term)) continue;
      const auto depths = plain_losses(*drafter_, batch.features, batch.packed, lm_head, term);
      for (size_t i = 0; i < depths.size(); ++i) {
        const at::Tensor sum = depths[i].in_vocabulary(depths[i].values).sum();
        terms[i][k] = sum.item<double>();
        expected = expected + sum * scale[i] * settings_.terms[term];
      }
    }
    expected.backward();
    EXPECT_NEAR(found, expected.item<double>(), 2e-5 * std::abs(found) + 1e-6) << loss;
    for (const auto& [name, gradient] : gradients())
      EXPECT_TRUE(at::allclose(found_gradients.at(name), gradient, 2e-3, 2e-6)) << loss << " of " << name;
    for (size_t i = 0; i < terms.size(); ++i)
      for (size_t k = 0; k < loss_term_count; ++k)
        EXPECT_NEAR(metrics_[i].terms[k], terms[i][k], 1e-4 * std::abs(terms[i][k]) + 1e-5)
            << loss << " head " << i;
  }
}

TEST_P(ObjectiveTest, SelfFeedingDoesNotDependOnTheMicroBatches) {
  self_feed_ = 0.5;
  settings_.distill_samples = 2;
  const auto [whole, whole_gradients] = in_groups_of(6);
  for (const size_t size : {1, 4}) {
    const auto [sum, gradients] = in_groups_of(size);
    EXPECT_NEAR(sum, whole, 1e-4) << "groups of " << size;
    for (const auto& [name, gradient] : gradients)
      EXPECT_TRUE(at::allclose(gradient, whole_gradients.at(name), 1e-3, 1e-5)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ObjectiveTest,
    testing::Values(Kind{"clover", {{"heads", 3}}}, Kind{"medusa", {{"heads", 3}}},
                    Kind{"clover", {{"heads", 2}, {"regression", "concat"}, {"block", "none"}}},
                    Kind{"clover", {{"heads", 2}, {"gate_groups", 4}, {"block", "attention"}}},
                    Kind{"clover", {{"heads", 2}, {"tap_layers", {1}}}},
                    Kind{"redrafter", {{"heads", 3}, {"layers", 1}}}, Kind{"eagle", {{"heads", 3}}},
                    Kind{"eagle3", {{"heads", 3}}},
                    Kind{"hydra", {{"heads", 2}, {"layers", 2}, {"own_heads", true}, {"prefix", true}}}),
    [](const auto& info) {
      std::string name = info.param.kind + std::to_string(info.index);
      return name;
    });

/// What this thread holds of CPU tensors, in bytes, at most, while it lives.
struct PeakMemory : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    now += bytes;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t now = 0, peak = 0;
};

/// Heads whose vocabulary is their own: their logits and gradients would be most of a step's memory.
TEST(ObjectiveMemoryTest, DoesNotGrowWithDepthTimesVocabulary) {
  model::TargetConfig config = model::TargetConfig::read(tiny_target());
  config.vocab = 4000;
  const auto target = model::Target::random(config, at::kFloat);
  const std::vector<int32_t> ids(102, 7);
  const std::vector<uint8_t> supervised(102, 1);
  const std::vector<data::TokenStore::Sample> samples(4, {ids, supervised, ""});
  const auto peak = [&](int64_t heads) {
    const auto drafter =
        model::make_drafter("redrafter", {{"heads", heads}, {"layers", 1}}, target->view(), {}, true, 1);
    Objective objective(*drafter, target->view(),
                        {.terms = LossTerms::parse("cross-entropy + soft-labels + lk")});
    const PackedBatch batch = pack(samples, heads, TeacherRow::yes);
    model::Features features;
    features.post_norm = at::randn({batch.rows, config.hidden});
    const std::vector<double> scale(heads, 1);
    std::vector<HeadMetrics> metrics(heads);
    const auto memory = std::make_shared<PeakMemory>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, memory);
    objective.loss(features, batch, {}, {}, scale, metrics).backward();
    return memory->peak;
  };
  const int64_t shallow = peak(3), deep = peak(8);
  // A depth keeps some states of each of its 400 rows, in fp32, which are far smaller than its logits.
  const int64_t numbers_a_row = (deep - shallow) / 5 / (400 * 4);
  EXPECT_GT(shallow, 256 * config.vocab * 4);  // one chunk of logits: the meter measures
  EXPECT_LT(numbers_a_row, config.vocab / 2);
}

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
  EXPECT_DOUBLE_EQ(metrics.top_k_accuracy(1), 0.25);
  EXPECT_DOUBLE_EQ(metrics.top_k_accuracy(5), 0.5);
}

}  // namespace
}  // namespace clover::train
