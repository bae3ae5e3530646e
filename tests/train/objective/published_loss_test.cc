// Losses and gradients of published trainers, computed by their own code (tests/golden/drafters/*/README.md).
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "data/files/safetensors.h"
#include "tests/support/goldens.h"
#include "train/objective/objective.h"

namespace clover::train {
namespace {

using data::SafetensorsReader;

/// The name in Apple's checkpoint of a parameter of heads with `layers` blocks.
std::string name_of_apple(const std::string& name, int64_t layers) {
  for (const auto& [own, theirs] : std::initializer_list<std::pair<std::string, std::string>>{
           {"cell.token.", "rnn_w."},
           {"cell.state.", "rnn_u."},
           {"block", "lm_head."},
           {"vocabulary.", "lm_head." + std::to_string(layers) + "."}}) {
    if (name.starts_with(own)) return theirs + name.substr(own.size());
  }
  return name;
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
  const at::Tensor ids = golden.read("ids").to(at::kInt).contiguous();
  const at::Tensor supervised = (golden.read("train.labels") >= 0).to(at::kByte).contiguous();
  std::vector<data::TokenStore::Sample> samples;
  for (int64_t i = 0; i < ids.size(0); ++i)
    samples.push_back({{ids[i].const_data_ptr<int32_t>(), static_cast<size_t>(ids.size(1))},
                       {supervised[i].const_data_ptr<uint8_t>(), static_cast<size_t>(ids.size(1))},
                       ""});
  for (const int64_t depths : {3, 5}) {
    nlohmann::json settings = GetParam().settings;
    settings["heads"] = depths;
    const auto drafter = model::make_drafter("redrafter", settings, target->view(), {}, true, 1);
    {
      const at::NoGradGuard no_grad;
      for (auto& [name, value] : drafter->named_parameters())
        value.copy_(weights.read(name_of_apple(name, settings["layers"]), value.sizes()));
    }
    std::vector<at::Tensor> features;
    for (size_t i = 0; i < samples.size(); ++i)
      features.push_back(
          golden.read("features")[static_cast<int64_t>(i)].slice(0, 0, useful_rows(samples[i], depths)));
    Objective objective(*drafter, target->view(), {});
    std::vector<double> scale;
    for (const int64_t count : count_draft_vocab_labels(samples, depths, objective.label_map()))
      scale.push_back(1 / static_cast<double>(count));
    std::vector<HeadMetrics> metrics(depths);
    const at::Tensor loss =
        objective.loss({{}, at::cat(features)}, pack(samples, depths), {}, {}, scale, metrics);
    loss.backward();

    const std::string run = "n" + std::to_string(depths) + ".";
    EXPECT_NEAR(loss.item<double>(), golden.read("train." + run + "loss").item<double>(), 1e-4);
    const at::Tensor losses = golden.read("train." + run + "losses"),
                     accuracy = golden.read("train." + run + "accuracy");
    for (int64_t i = 0; i < depths; ++i) {
      EXPECT_NEAR(metrics[i].mean_loss(), losses[i].item<double>(), 1e-5) << "iteration " << i;
      for (int64_t k = 1; k <= 5; ++k)
        EXPECT_NEAR(metrics[i].top(k), accuracy[i][k - 1].item<double>(), 1e-6)
            << "iteration " << i << " top " << k;
    }
    for (const auto& [name, value] : drafter->named_parameters()) {
      const at::Tensor expected = gradients.read(run + name_of_apple(name, settings["layers"]));
      EXPECT_TRUE(at::allclose(value.grad(), expected, 1e-4, 1e-6))
          << run << name << " differs by " << (value.grad() - expected).abs().max().item<double>();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Apple, ReDrafterLossTest,
                         testing::Values(ReDrafterCase{"redrafter", {{"layers", 2}}},
                                         ReDrafterCase{"redrafter-sum",
                                                       {{"layers", 1}, {"recurrence", "sum"}}}),
                         [](const auto& info) { return info.index == 0 ? "linear" : "sum"; });

}  // namespace
}  // namespace clover::train
