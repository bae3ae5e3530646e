#include "tests/infer/engine/gpu_engine.h"
#include "tests/infer/engine/plain_controls.h"

// Requests with logit controls (penalties, bans, biases) on a GPU.
namespace clover::infer {
namespace {

class GpuControlsTest : public GpuEngineTest {
 protected:
  static std::vector<Request> controlled(int64_t count, double temperature) {
    auto all = requests(count, temperature);
    for (Request& request : all) {
      request.controls = test::some_controls(request.tag);
      request.max_tokens += 6;
    }
    return all;
  }
};

TEST_F(GpuControlsTest, TokensAreThoseOfReadingTheWholeTextAnew) {
  const auto all = controlled(14, 0);
  Answers expected;
  for (const Request& request : all) expected[request.tag] = test::answered_plainly(*target_, request);
  for (const bool graphs : {false, true}) {
    EXPECT_EQ(expected, run(all, options(Policy::off, -1, 3, graphs), nullptr)) << graphs;
    EXPECT_GT(stats_.steps_ahead, 0);  // some requests' controls do not hang on the tokens before
  }
}

TEST_F(GpuControlsTest, GuessesChangeNoToken) {
  const auto heads = drafter("clover");
  for (const double temperature : {0.0, 0.8}) {
    auto all = controlled(14, temperature);
    for (Request& request : all) request.sampling.min_p = request.tag % 2 == 0 ? 0.1 : 0;
    const Answers expected = run(all, options(Policy::off, -1, 1, false), nullptr);
    for (const auto& [policy, budget] :
         {std::pair{Policy::off, -1}, {Policy::chain, -1}, {Policy::clover, 6}, {Policy::automatic, -1}}) {
      SCOPED_TRACE(to_string(policy) + " temperature " + std::to_string(temperature));
      EngineOptions chosen = options(policy, budget, 3);
      chosen.suffix = policy == Policy::automatic;
      EXPECT_EQ(expected, run(all, chosen, heads.get()));
    }
  }
}

}  // namespace
}  // namespace clover::infer
