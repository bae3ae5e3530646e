#include "tests/infer/gpu_engine.h"
#include "tests/support/stand_in_device.h"

namespace clover::infer {
namespace {

// Waits keep a GPU idle: one for what the target says, one for each depth of the drafts.
TEST_F(GpuEngineTest, AStepWaitsForTheGpuOnceADepth) {
  const auto clover = drafter("clover");
  for (const auto& [policy, waits] : {std::pair{Policy::off, 1}, {Policy::chain, 4}, {Policy::clover, 4}}) {
    Engine engine(*target_, clover.get(), *tokenizer_, options(policy, 8, 3));
    for (Request request : requests(3, 0)) {
      request.max_tokens = 40;
      engine.submit(std::move(request));
    }
    engine.step();  // reads the prompts
    for (int step = 0; step < 4; ++step) {
      const int64_t before = test::waits_for_stand_in();
      engine.step();
      EXPECT_EQ(test::waits_for_stand_in() - before, waits) << to_string(policy);
    }
  }
}

}  // namespace
}  // namespace clover::infer
