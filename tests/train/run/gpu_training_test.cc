#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "model/checkpoint/heads_checkpoint.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/run/tiny_run.h"
#include "train/run/fit.h"
#include "train/run/fit_job.h"
#include "train/run/trainer.h"

// Training on a real or emulated GPU: tensors are on the right device, and the weights are the same as on the
// CPU.
namespace clover::train {
namespace {

struct Heads {
  const char* kind;
  const char* tap_layers = "";
  const char* loss = "cross-entropy";
  double self_feed = 0;
  int64_t distill_samples = 0;
  const char* name = kind;
};

class GpuTrainingTest : public testing::TestWithParam<Heads> {
 protected:
  FitJob job(const char* device, const std::string& output) const {
    if (!std::filesystem::exists(folder_ / "store")) write_counting_store(folder_ / "store", 20);
    FitSettings settings;
    settings.kind = GetParam().kind;
    if (*GetParam().tap_layers != 0) settings.kind_options["tap-layers"] = GetParam().tap_layers;
    settings.loss = GetParam().loss;
    settings.self_feed = GetParam().self_feed;
    settings.distill_samples = GetParam().distill_samples;
    settings.target = tiny_target();
    settings.data = folder_ / "store";
    settings.device = device;
    settings.dtype = settings.compute_dtype = "float32";
    settings.steps = 4;
    settings.batch = 4;
    settings.micro_batch = 3;
    settings.draft_vocab = 100;
    settings.warmup = 1;
    settings.eps =
        1e-5;  // else AdamW moves weights whose gradient is rounding noise as far as any, either way
    settings.eval_prompts = 0;
    FitFolders folders;
    folders.output = folder_ / output;
    return prepare_job(settings, folders);
  }

  test::TemporaryFolder folder_;
};

TEST_P(GpuTrainingTest, LearnsWhatItLearnsOnTheCpu) {
  const FitJob here = job("cpu", "here"), there = job("cuda", "there");
  ASSERT_FALSE(there.target->device().is_cpu());
  Communicator alone;
  Trainer on_cpu(here, alone), on_gpu(there, alone);
  for (int64_t step = 0; step < 4; ++step) {
    if (step == 2) {  // as an evaluation does
      there.drafter->freeze(at::kFloat);
      there.drafter->thaw();
    }
    const StepMetrics expected = on_cpu.step(step), found = on_gpu.step(step);
    EXPECT_NEAR(found.loss, expected.loss, 1e-3 * expected.loss) << "step " << step;
    EXPECT_NEAR(found.gradient_norm, expected.gradient_norm, 5e-3 * expected.gradient_norm)
        << "step " << step;
    EXPECT_EQ(found.answer_tokens, expected.answer_tokens);
  }
  for (const auto& [name, value] : there.drafter->named_parameters()) {
    ASSERT_FALSE(value.is_cpu()) << name;
    const at::Tensor expected = here.drafter->parameter(name);
    EXPECT_LT((value.cpu() - expected).abs().max().item<float>(), 2e-3) << name;
  }
}

TEST_P(GpuTrainingTest, ARunWritesHeadsThatTheCpuReads) {
  FitJob there = job("cuda", "run");
  Communicator alone;
  ASSERT_EQ(fit(there, alone), 0);
  const auto target = model::Target::load(tiny_target(), at::kFloat);
  const auto heads = model::load_heads(folder_ / "run/best", *target, /*trainable=*/true);
  for (const auto& [name, value] : heads->named_parameters())
    EXPECT_TRUE(at::equal(value, there.drafter->parameter(name).cpu())) << name;
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, GpuTrainingTest,
    testing::Values(Heads{.kind = "clover"}, Heads{.kind = "clover", .tap_layers = "1", .name = "taps"},
                    Heads{.kind = "medusa"}, Heads{.kind = "redrafter"},
                    Heads{.kind = "clover",
                          .loss = "soft-labels + 0.5 lk + total-variation + smooth-l1",
                          .name = "terms"},
                    Heads{.kind = "redrafter", .self_feed = 1, .distill_samples = 2, .name = "fed"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace clover::train
