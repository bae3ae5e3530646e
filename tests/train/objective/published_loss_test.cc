// Losses and gradients of published trainers, computed by their own code (tests/golden/drafters/*/README.md).
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "data/files/safetensors.h"
#include "tests/support/goldens.h"
#include "tests/support/published_names.h"
#include "tests/support/reading.h"
#include "tests/train/objective/plain_losses.h"
#include "train/features/feature_cache.h"
#include "train/objective/objective.h"

namespace clover::train {
namespace {

using data::SafetensorsReader;

void expect_gradients(const model::Drafter& drafter, const SafetensorsReader& expected, double absolute,
                      const std::function<std::string(const std::string&)>& name_of) {
  for (const auto& [name, value] : drafter.named_parameters()) {
    const at::Tensor theirs = expected.read(name_of(name));
    EXPECT_TRUE(at::allclose(value.grad(), theirs, 1e-4, absolute))
        << name_of(name) << " differs by " << (value.grad() - theirs).abs().max().item<double>();
  }
}

/// The samples of a golden: `labels` i64 [B, S] are -100 where nothing is learned, as Medusa's, Hydra's and
/// Apple's trainers have them.
struct LabelledSamples {
  LabelledSamples(const at::Tensor& all_ids, const at::Tensor& labels)
      : ids(all_ids.to(at::kInt).contiguous()), supervised((labels >= 0).to(at::kByte).contiguous()) {
    const auto length = static_cast<size_t>(ids.size(1));
    for (int64_t i = 0; i < ids.size(0); ++i)
      views.push_back({{ids[i].const_data_ptr<int32_t>(), length},
                       {supervised[i].const_data_ptr<uint8_t>(), length},
                       ""});
  }

  /// The rows of features [B, S, H] that a batch reads.
  model::Features rows_of(const at::Tensor& features, int64_t heads, TeacherRow teacher) const {
    std::vector<at::Tensor> parts;
    for (size_t i = 0; i < views.size(); ++i)
      parts.push_back(features[static_cast<int64_t>(i)].slice(0, 0, useful_rows(views[i], heads, teacher)));
    return {{}, at::cat(parts)};
  }

  at::Tensor ids, supervised;
  std::vector<data::TokenStore::Sample> views;
};

/// The loss of `samples` with gradients, each head's the mean over its labels: heads count alike.
at::Tensor loss_of(model::Drafter& drafter, const model::Target& target, const LabelledSamples& samples,
                   const at::Tensor& features, const ObjectiveSettings& settings,
                   std::vector<HeadMetrics>& metrics) {
  const int64_t heads = drafter.trained_depth();
  Objective objective(drafter, target.view(), settings);
  std::vector<double> scale;
  for (const int64_t count : count_draft_vocab_labels(samples.views, heads, objective.label_map()))
    scale.push_back(1 / static_cast<double>(count));
  metrics.assign(heads, {});
  const at::Tensor loss =
      objective.loss(samples.rows_of(features, heads, objective.wants_teacher_row()),
                     pack(samples.views, heads, objective.wants_teacher_row()), {}, {}, scale, metrics);
  loss.backward();
  return loss;
}

struct ReDrafterCase {
  const char* name;
  nlohmann::json settings;
};

class ReDrafterLossTest : public testing::TestWithParam<ReDrafterCase> {};

/// Apple's trainer: cross-entropy, the mean over each iteration's own labels, summed with equal weights.
TEST_P(ReDrafterLossTest, LossesAccuraciesAndGradientsAreThoseOfApplesTrainer) {
  const auto folder = test::goldens() / "drafters" / GetParam().name;
  const auto golden = SafetensorsReader::open(folder / "golden.safetensors");
  const auto gradients = SafetensorsReader::open(folder.string() + "-training/gradients.safetensors");
  const auto weights = SafetensorsReader::open(folder / "published/model.safetensors");
  const auto target = model::Target::load(test::goldens() / "drafters/target", at::kFloat);
  const LabelledSamples samples(golden.read("ids"), golden.read("train.labels"));
  for (const int64_t depths : {3, 5}) {
    nlohmann::json settings = GetParam().settings;
    settings["heads"] = depths;
    const auto drafter = model::make_drafter("redrafter", settings, target->view(), {}, true, 1);
    const auto name_of = [&](const std::string& name) {
      return test::name_of_apple(name, settings.at("layers"));
    };
    test::take_weights(*drafter, weights, name_of);
    std::vector<HeadMetrics> metrics;
    const at::Tensor loss = loss_of(*drafter, *target, samples, golden.read("features"), {}, metrics);
    const std::string run = "n" + std::to_string(depths) + ".";
    EXPECT_NEAR(loss.item<double>(), golden.read("train." + run + "loss").item<double>(), 1e-4);
    const at::Tensor losses = golden.read("train." + run + "losses"),
                     accuracy = golden.read("train." + run + "accuracy");
    for (int64_t i = 0; i < depths; ++i) {
      EXPECT_NEAR(metrics[i].mean_loss(), losses[i].item<double>(), 1e-5) << "iteration " << i;
      for (int64_t k = 1; k <= 5; ++k)
        EXPECT_NEAR(metrics[i].top_k_accuracy(k), accuracy[i][k - 1].item<double>(), 1e-6)
            << "iteration " << i << " top " << k;
    }
    expect_gradients(*drafter, gradients, 1e-6, [&](const std::string& name) { return run + name_of(name); });
  }
}

INSTANTIATE_TEST_SUITE_P(Apple, ReDrafterLossTest,
                         testing::Values(ReDrafterCase{"redrafter", {{"layers", 2}}},
                                         ReDrafterCase{"redrafter-sum",
                                                       {{"layers", 1}, {"recurrence", "sum"}}}),
                         [](const auto& info) { return info.index == 0 ? "linear" : "sum"; });

/// Medusa's trainer: cross-entropy, heads of equal weight with vocabularies of their own.
TEST(MedusaLossTest, LossesAndGradientsAreThoseOfItsTrainer) {
  const auto folder = test::goldens() / "drafters/medusa";
  const auto golden = SafetensorsReader::open(folder / "golden.safetensors");
  const auto target = model::Target::load(test::goldens() / "drafters/target-small", at::kFloat);
  const auto drafter = model::make_drafter("medusa", {{"heads", 3}, {"layers", 1}, {"own_heads", true}},
                                           target->view(), {}, true, 1);
  test::take_weights(*drafter, SafetensorsReader::open(folder / "published/medusa_lm_head.safetensors"),
                     test::name_of_medusa);
  std::vector<HeadMetrics> metrics;
  const LabelledSamples samples(golden.read("train.ids"), golden.read("train.labels"));
  const at::Tensor loss = loss_of(*drafter, *target, samples, golden.read("train.features"), {}, metrics);
  EXPECT_NEAR(loss.item<double>(), golden.read("train.loss").item<double>(), 1e-4);
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_NEAR(metrics[i].mean_loss(), golden.read("train.losses")[i].item<double>(), 1e-5) << "head " << i;
  expect_gradients(*drafter, SafetensorsReader::open(folder.string() + "-training/gradients.safetensors"),
                   1e-6, test::name_of_medusa);
}

/// Hydra's trainer: hard labels, soft labels, and regression of the features.  The last masks a row by the
/// token that it guesses the feature of, one before the label that we ask.
TEST(HydraLossTest, TermsAndGradientsAreThoseOfItsTrainer) {
  const auto folder = test::goldens() / "drafters/hydra";
  const auto golden = SafetensorsReader::open(folder / "golden.safetensors");
  const auto target = model::Target::load(test::goldens() / "drafters/target-small", at::kFloat);
  const at::Tensor ids = golden.read("train.ids"), labels = golden.read("train.labels"),
                   features = golden.read("train.features"), losses = golden.read("train.all.losses");
  const at::Tensor more = at::zeros({ids.size(0), 1}, at::kLong);
  const LabelledSamples samples(ids, labels),
      one_later(at::cat({ids, more}, 1), at::cat({more - 1, labels}, 1));
  const auto drafter = model::make_drafter("hydra", {{"heads", 4}, {"layers", 1}, {"own_heads", true}},
                                           target->view(), {}, true, 1);
  test::take_weights(*drafter, SafetensorsReader::open(folder / "published/hydra_lm_head.safetensors"),
                     [](const std::string& name) { return test::name_of_hydra(name, false); });
  double sum = 0;
  const auto add = [&](const char* terms, const LabelledSamples& of) {
    ObjectiveSettings settings;
    settings.terms = LossTerms::parse(terms);
    std::vector<HeadMetrics> metrics;
    sum += loss_of(*drafter, *target, of, features, settings, metrics).item<double>();
    for (int64_t i = 0; i < 4; ++i) {
      int64_t column = 0;
      for (const LossTerm term : {LossTerm::cross_entropy, LossTerm::soft_labels, LossTerm::smooth_l1}) {
        const double mean = metrics[i].per_row(metrics[i].terms[static_cast<size_t>(term)]);
        const double theirs = settings.terms.has(term) ? losses[i][column].item<double>() : 0;
        EXPECT_NEAR(mean, theirs, 2e-5) << terms << ": head " << i << " term " << column;
        ++column;
      }
    }
  };
  add("0.5 cross-entropy + 0.25 soft-labels", samples);
  add("2 smooth-l1", one_later);
  EXPECT_NEAR(sum, golden.read("train.all.loss").item<double>(), 2e-4);
  expect_gradients(*drafter, SafetensorsReader::open(folder.string() + "-training/gradients.safetensors"),
                   2e-6, [](const std::string& name) { return "all." + test::name_of_hydra(name, false); });
}

/// Samples of SafeAILab's trainers.  They mask a row by the token that it reads the features of, two before
/// the label that we ask, and learn at a row whose label is behind the end: a token more stands for it.
struct EagleSamples {
  EagleSamples(const at::Tensor& all_ids, const at::Tensor& loss_mask, const std::vector<int64_t>& lengths) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      std::vector<int32_t> own;
      std::vector<uint8_t> mask{0, 0};
      for (int64_t t = 0; t < lengths[i]; ++t) {
        own.push_back(all_ids[static_cast<int64_t>(i)][t].item<int32_t>());
        if (t + 1 < lengths[i]) mask.push_back(loss_mask[static_cast<int64_t>(i)][t].item<int64_t>() != 0);
      }
      own.push_back(0);
      ids.push_back(own);
      supervised.push_back(mask);
    }
    for (size_t i = 0; i < ids.size(); ++i) views.push_back({ids[i], supervised[i], ""});
  }

  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<uint8_t>> supervised;
  std::vector<data::TokenStore::Sample> views;
};

TEST(EagleLossTest, LossAndGradientsAreThoseOfSafeAILabsTrainer) {
  const auto folder = test::goldens() / "drafters/eagle1";
  const auto golden = SafetensorsReader::open(folder / "golden.safetensors");
  const auto target = model::Target::load(test::goldens() / "drafters/target", at::kFloat);
  const auto drafter =
      model::make_drafter("eagle", {{"heads", 1}, {"mlp_width", 48}}, target->view(), {}, true, 1);
  const auto name_of = [](const std::string& name) { return test::name_of_safe_ai_lab(name, "eagle"); };
  test::take_weights(*drafter, SafetensorsReader::open(folder / "published/model.safetensors"), name_of);
  const at::Tensor mask = golden.read("train.loss_mask");
  const EagleSamples samples(golden.read("train.ids"), mask, test::to_ids(golden.read("train.lengths")));
  std::vector<at::Tensor> features;
  for (size_t i = 0; i < samples.views.size(); ++i)
    features.push_back(golden.read("train.features")[static_cast<int64_t>(i)].slice(
        0, 0, useful_rows(samples.views[i], 1, TeacherRow::yes)));

  Objective objective(*drafter, target->view(), {.terms = LossTerms::parse("smooth-l1 + 0.1 soft-labels")});
  const double scale[] = {1 / (mask.sum().item<double>() + 1e-5)};
  std::vector<HeadMetrics> metrics(1);
  const at::Tensor loss = objective.loss({{}, at::cat(features)}, pack(samples.views, 1, TeacherRow::yes), {},
                                         {}, scale, metrics);
  loss.backward();
  EXPECT_NEAR(loss.item<double>(), golden.read("train.loss").item<double>(), 1e-4);
  const auto term = [&](LossTerm which) { return scale[0] * metrics[0].terms[static_cast<size_t>(which)]; };
  EXPECT_NEAR(term(LossTerm::smooth_l1), golden.read("train.vloss").item<double>(), 1e-5);
  EXPECT_NEAR(term(LossTerm::soft_labels), golden.read("train.ploss").item<double>(), 1e-3);
  expect_gradients(*drafter, SafetensorsReader::open(folder.string() + "-training/gradients.safetensors"),
                   1e-5, name_of);
}

/// Seven depths of training-time test, soft labels over the draft vocabulary.  They leave a row out where the
/// target's best token is outside it, and divide by all positions of the batch.
TEST(Eagle3LossTest, LossesAndGradientsAreThoseOfSafeAILabsTrainer) {
  constexpr int64_t depths = 7, positions = 2 * 14;
  const auto folder = test::goldens() / "drafters/eagle3";
  const auto golden = SafetensorsReader::open(folder / "golden.safetensors");
  const auto target = model::Target::load(test::goldens() / "drafters/target-gqa", at::kFloat);
  const at::Tensor map = golden.read("target_ids_of_draft").clone();
  const auto drafter =
      model::make_drafter("eagle3", {{"heads", depths}, {"rope_theta", 10000.0}, {"mlp_width", 48}},
                          target->view(), map, true, 1);
  const auto name_of = [](const std::string& name) { return test::name_of_safe_ai_lab(name, "eagle3"); };
  test::take_weights(*drafter, SafetensorsReader::open(folder / "published/model.safetensors"), name_of);
  const EagleSamples samples(golden.read("train.ids"), golden.read("train.loss_mask"),
                             test::to_ids(golden.read("train.attention_mask").sum(1)));
  const PackedBatch batch = pack(samples.views, depths, TeacherRow::yes);
  std::vector<int64_t> rows;
  for (const auto& sample : samples.views) rows.push_back(useful_rows(sample, depths, TeacherRow::yes));
  model::FeatureTaps taps = drafter->taps();
  taps.post_norm = true;
  const auto features = FeatureCache(*target, taps, 64, 0, {})
                            .features_of(samples.views, rows, std::vector<int64_t>(rows.size(), -1));

  const at::Tensor best = golden.read("train.target_argmax"), losses = golden.read("train.losses");
  const auto found = plain_losses(*drafter, features, batch, target->view().head->unpack().to(at::kFloat),
                                  LossTerm::soft_labels);
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (int64_t k = 0; k < depths; ++k) {
    const at::Tensor target_best = best.index({found[k].sample, found[k].t + 1 + k});
    const at::Tensor kept = at::isin(target_best, map).to(at::kDouble);
    const at::Tensor mean = (found[k].values * kept).sum() / positions;
    EXPECT_NEAR(mean.item<double>(), losses[k].item<double>(), 1e-4) << "depth " << k;
    loss = loss + std::pow(0.8, k) * mean;
  }
  loss.backward();
  EXPECT_NEAR(loss.item<double>(), golden.read("train.loss").item<double>(), 1e-4);
  expect_gradients(*drafter, SafetensorsReader::open(folder.string() + "-training/gradients.safetensors"),
                   1e-5, name_of);
}

}  // namespace
}  // namespace clover::train
