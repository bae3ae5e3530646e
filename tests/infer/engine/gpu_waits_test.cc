#include "tests/infer/engine/gpu_engine.h"
#include "tests/support/stand_in_device.h"

namespace clover::infer {
namespace {

// The time of a small model's step is proportional to its number of kernels.  A layer has five: query, key
// and value projections; attention; output projection; gate and up projections; down projection.  Norms are
// kernels of their own only if there are many rows.
TEST_F(GpuEngineTest, ALayerIsFiveKernelsAndSevenForManyRows) {
  const auto launches = [&](int64_t layers, int64_t rows) {
    model::TargetConfig config = target_->config();
    config.layers = layers;
    const auto target = model::Target::random(config, at::kBFloat16, target_->device());
    model::KvCache cache(target->kv_shape(0), 4, 16);
    model::RowBatch batch;
    const int32_t sequence = cache.open();
    for (int64_t row = 0; row < rows; ++row) batch.add(row + 3, sequence, row - 1);
    const int64_t before = test::launches_on_stand_in();
    target->forward(batch, cache, {});
    return test::launches_on_stand_in() - before;
  };
  EXPECT_EQ(launches(3, 1) - launches(2, 1), 5);
  EXPECT_EQ(launches(3, 8) - launches(2, 8), 5);
  EXPECT_EQ(launches(3, 9) - launches(2, 9), 7);
}

// Waits keep a GPU idle: one for what the target says, be it likeliest or drawn, and one for the draft.
TEST_F(GpuEngineTest, AStepWaitsForTheGpuTwice) {
  const auto clover = drafter("clover");
  constexpr double some = -1;  // of the sequences draw, and the logits of none are fetched
  for (const double temperature : {0.0, 0.8, some}) {
    for (const auto& [policy, waits] : {std::pair{Policy::off, 1}, {Policy::chain, 2}, {Policy::clover, 2}}) {
      Engine engine(*target_, clover.get(), *tokenizer_, options(policy, 8, 3));
      for (Request request : requests(3, temperature)) {
        request.max_tokens = 40;
        if (temperature == some) request.sampling.temperature = request.tag % 2 == 0 ? 0 : 0.8;
        engine.submit(std::move(request));
      }
      read_prompts(engine, 3);
      engine.step();
      for (int step = 0; step < 4; ++step) {
        const int64_t before = test::waits_for_stand_in();
        engine.step();
        EXPECT_EQ(test::waits_for_stand_in() - before, waits) << to_string(policy) << " at " << temperature;
      }
    }
  }
}

// Starting kernels one by one keeps it idle, too.  Once its shapes are known a step starts a graph for the
// pass, the tokens chosen with it, what follows them through the trees, what picks the features of accepted
// rows, a graph for the draft, and what moves the kept rows; and another kernel where tokens are drawn.
TEST_F(GpuEngineTest, AStepStartsTwoGraphsAndLittleElse) {
  const auto clover = drafter("clover");
  for (const auto& [policy, temperature] :
       {std::pair{Policy::chain, 0.0}, {Policy::clover, 0.0}, {Policy::clover, 0.8}}) {
    Engine engine(*target_, clover.get(), *tokenizer_, options(policy, 8, 3));
    int64_t most = 0;
    for (int round = 0; round < 3; ++round) {  // to run the kernels of each shape, to record it, to replay it
      for (Request request : requests(3, temperature)) {
        request.max_tokens = 20;
        engine.submit(std::move(request));
      }
      read_prompts(engine, 3);
      engine.step();
      most = 0;
      while (!engine.idle()) {
        const int64_t before = test::launches_on_stand_in();
        engine.step();
        most = std::max(most, test::launches_on_stand_in() - before);
      }
    }
    EXPECT_LE(most, 1 + 4 + (temperature > 0 ? 1 : 0)) << to_string(policy) << " at " << temperature;
  }
}

// The last wait of a step is for tokens behind which the next drafts are under way already: nothing is
// started between that and the first wait of the next step.
TEST_F(GpuEngineTest, TheGpuGoesOnWhileTheCpuWaitsForTokens) {
  const auto clover = drafter("clover");
  for (const Policy policy : {Policy::chain, Policy::clover}) {
    Engine engine(*target_, clover.get(), *tokenizer_, options(policy, 8, 3));
    for (Request request : requests(3, 0.8)) {
      request.max_tokens = 30;
      engine.submit(std::move(request));
    }
    read_prompts(engine, 3);
    for (int step = 0; step < 2; ++step) engine.step();  // drafts without knowing better
    int64_t begun = 0;
    for (int step = 0; step < 6; ++step) {
      test::launches_at_waits().clear();
      engine.step();
      const std::vector<int64_t>& waits = test::launches_at_waits();
      ASSERT_EQ(waits.size(), 2u) << to_string(policy);
      if (step > 0) {
        EXPECT_EQ(waits[0], begun) << to_string(policy) << " " << step;
      }
      begun = waits.back();
      EXPECT_EQ(test::launches_on_stand_in(), begun) << "something is started behind the last wait";
    }
  }
}

// Plain decoding begins the next pass before it waits for the tokens of this one: it starts a copy of these
// tokens, a graph, and a copy of what that says.
TEST_F(GpuEngineTest, ThePassBehindAPlainOneHasBegunBeforeTheCpuWaits) {
  for (const bool automatic : {false, true}) {
    Engine engine(*target_, nullptr, *tokenizer_,
                  options(automatic ? Policy::automatic : Policy::off, -1, 3));
    for (Request request : requests(3, 0)) {
      request.max_tokens = 30;
      engine.submit(std::move(request));
    }
    read_prompts(engine, 3);
    for (int step = 0; step < 4; ++step) engine.step();  // runs, records
    for (int step = 0; step < 6; ++step) {
      test::launches_at_waits().clear();
      const int64_t before = test::launches_on_stand_in();
      engine.step();
      const std::vector<int64_t>& waits = test::launches_at_waits();
      ASSERT_EQ(waits.size(), 1u);
      EXPECT_EQ(waits[0] - before, 3) << "the next pass, and nothing else, has begun";
      EXPECT_EQ(test::launches_on_stand_in(), waits[0]) << "something is started behind the wait";
    }
  }
}

// Heads that do not pay must not cost plain decoding that: what they have not seen grows meanwhile beyond
// what a draft is recorded for.
TEST_F(GpuEngineTest, HeadsThatAreNotAskedDoNotKeepPassesFromBeginningAhead) {
  auto all = requests(8, 0);
  for (Request& request : all) request.max_tokens = 110;
  // Heads that never guess right do not pay, whatever steps cost here.
  std::vector<bool> said(target_->config().vocab);
  for (const auto& [tag, ids] : run(all, options(Policy::off, -1, 8), nullptr))
    for (const int64_t id : ids) said[id] = true;
  std::vector<int64_t> unsaid;
  for (int64_t id = 0; id < target_->config().vocab; ++id)
    if (!said[id]) unsaid.push_back(id);
  const auto clover = drafter("clover", at::tensor(unsaid).to(target_->device()));
  run(all, options(Policy::automatic, -1, 8), clover.get());
  EXPECT_GT(stats_.steps_ahead, stats_.steps * 3 / 5) << "of " << stats_.steps;
}

}  // namespace
}  // namespace clover::infer
