#include "tests/infer/engine/gpu_engine.h"
#include "infer/bench/step_bench.h"

// The whole engine on a real or emulated GPU: tensors are on the right device, and with CUDA kernels and
// graphs no setting changes a token.
namespace clover::infer {
namespace {

TEST_F(GpuEngineTest, TheTargetSaysWhatItSaysOnTheCpu) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 90; ++i) ids.push_back(3 + i * i % 120);
  for (const char* name : {"tied-bf16", "qwen2", "qwen3"}) {
    load(name);
    const auto here = model::Target::load(test::golden_target(name), at::kBFloat16);
    const at::Tensor expected = test::read_text(*here, ids).logits;
    const at::Tensor found = test::read_text(*target_, ids).logits.cpu();
    EXPECT_LT((found - expected).abs().max().item<float>(), 0.02 * expected.abs().max().item<float>());
    EXPECT_TRUE(at::equal(found, test::read_text(*target_, ids, 7).logits.cpu())) << "read in chunks of 7";
  }
}

TEST_F(GpuEngineTest, HeadsOfEveryFamilyChangeNoToken) {
  for (const char* name : {"qwen2", "qwen3"}) {
    load(name);
    const auto all = requests(3, 0.8);
    Answers expected;
    for (const Request& request : all)
      expected.merge(run({request}, options(Policy::off, -1, 1, false), nullptr));
    const auto clover = drafter("clover");
    EXPECT_EQ(expected, run(all, options(Policy::clover, 4, 3), clover.get())) << name;
  }
}

TEST_F(GpuEngineTest, TokensDependOnNothingButTheRequest) {
  const auto clover = drafter("clover"), medusa = drafter("medusa"),
             trimmed = drafter("clover", at::arange(2, 120, 3, at::kLong));
  for (const double temperature : {0.0, 0.8}) {
    const auto all = requests(5, temperature);
    Answers expected;
    for (const Request& request : all)
      expected.merge(run({request}, options(Policy::off, -1, 1, false), nullptr));
    for (model::Drafter* guesser : {clover.get(), medusa.get(), trimmed.get()}) {
      for (const Policy policy : {Policy::off, Policy::chain, Policy::fixed_tree, Policy::clover,
                                  Policy::automatic, Policy::beam, Policy::best_first}) {
        if (policy == Policy::off && guesser != clover.get()) continue;  // nobody is asked
        for (const int64_t batch : {1, 3}) {
          SCOPED_TRACE(guesser->kind() + " " + to_string(policy) + " batch " + std::to_string(batch) +
                       " temperature " + std::to_string(temperature));
          EngineOptions chosen = options(policy, policy == Policy::automatic ? -1 : 4, batch);
          chosen.suffix = policy != Policy::off && batch == 3;
          chosen.graphs = batch == 3 || policy == Policy::clover;
          EXPECT_EQ(expected, run(all, chosen, guesser));
          EXPECT_EQ(chosen.graphs, stats_.graphs > 0);
        }
      }
    }
  }
}

TEST_F(GpuEngineTest, ARequestWithoutNumbersFailsAlone) {
  const test::TemporaryFolder damaged;
  test::write_damaged_target(damaged, 128);
  target_ = model::Target::load(damaged, at::kBFloat16, kernels::open_gpu(0));
  for (const double temperature : {0.0, 0.8}) {
    auto all = requests(4, temperature);
    errors_.clear();
    Answers expected;
    for (const Request& request : all)
      expected.merge(run({request}, options(Policy::off, -1, 1, false), nullptr));
    const auto alone = std::exchange(errors_, {});  // of an answer that says the token itself
    Request broken = requests(1, temperature)[0];
    broken.tag = 100;
    broken.prompt[7] = 128;
    all.insert(all.begin(), broken);
    expected[100] = {};
    for (const Policy policy : {Policy::chain, Policy::off}) {
      EXPECT_EQ(expected, run(all, options(policy, -1, 2), drafter("clover").get()));
      EXPECT_NE(errors_[100].find("are not numbers"), std::string::npos) << errors_[100];
      errors_.erase(100);
      EXPECT_EQ(errors_, alone);
      errors_.clear();
    }
  }
}

TEST_F(GpuEngineTest, StepsAndDraftsAreTimedForEveryBatch) {
  const std::vector<NamedDrafter> drafters{{"heads-clover", drafter("clover")},
                                           {"heads-medusa", drafter("medusa")}};
  StepBenchPlan plan;
  plan.context = 40;
  plan.rows = {1, 5};
  plan.batch_sizes = {1, 3};
  plan.rounds = 1;
  const nlohmann::json entries = run_step_bench(*target_, drafters, plan);
  ASSERT_EQ(entries.size(), 8u);
  for (const auto& entry : entries) EXPECT_GT(entry["seconds"].get<double>(), 0) << entry;
}

TEST_F(GpuEngineTest, AnswersThatOutgrowAGraphGoOnInTheNext) {
  auto all = requests(2, 0);
  for (Request& request : all)
    request.max_tokens = 70;  // 8 tokens a page: beyond the 8 pages of the first graphs
  Answers expected;
  for (const Request& request : all)
    expected.merge(run({request}, options(Policy::off, -1, 1, false), nullptr));
  const auto clover = drafter("clover");
  EXPECT_EQ(expected, run(all, options(Policy::chain, -1, 2), clover.get()));
  EXPECT_GE(stats_.graphs, 2);
}

// A draft that runs ahead leaves a sequence that joins without guesses in its first step.
TEST_F(GpuEngineTest, RecordedAnswersNeedNoPassesAndHardlyOtherSteps) {
  for (const char* kind : {"clover", "medusa", "eagle"}) {
    SCOPED_TRACE(kind);
    const auto heads = moved_drafter(*target_, kind, {}, nlohmann::json::object());
    auto all = requests(5, 0);
    const Answers expected = run(all, options(Policy::clover, 4, 3), heads.get());
    const int64_t passes = stats_.passes;
    for (Request& request : all) {
      auto recorded = std::make_shared<RecordedAnswer>();
      recorded->token_ids = expected.at(request.tag);
      std::vector<int64_t> text = request.prompt;
      text.insert(text.end(), recorded->token_ids.begin(), recorded->token_ids.end());
      recorded->features = test::read_text(*target_, text).features;
      request.recorded = recorded;
    }
    EngineOptions chosen = options(Policy::clover, 4, 3);
    chosen.recorded_answers = true;
    EXPECT_EQ(expected, run(all, chosen, heads.get()));
    EXPECT_LE(stats_.passes, passes);
    EXPECT_GE(stats_.passes, passes - 5);
  }
}

}  // namespace
}  // namespace clover::infer
