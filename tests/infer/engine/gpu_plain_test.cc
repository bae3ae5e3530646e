#include <set>

#include "infer/engine/decode_pass.h"
#include "tests/infer/engine/gpu_engine.h"

// Passes that a GPU begins before the CPU knows their input tokens: tokens and features are the same as when
// the CPU waits for each pass.
namespace clover::infer {
namespace {

class GpuPlainTest : public GpuEngineTest {
 protected:
  /// The greedy answer to a prompt: the whole text is read again for every token.
  std::vector<int64_t> likeliest(std::vector<int64_t> ids, int64_t count) const {
    std::vector<int64_t> said;
    for (int64_t i = 0; i < count; ++i) {
      const at::Tensor logits = test::read_text(*target_, ids).logits.cpu();
      said.push_back(logits[-1].argmax().item<int64_t>());
      ids.push_back(said.back());
    }
    return said;
  }
};

TEST_F(GpuPlainTest, TokensAreThoseOfReadingTheWholeText) {
  auto all = requests(5, 0);
  Answers expected;
  for (Request& request : all) {
    request.max_tokens = 3 + 4 * request.tag;
    expected[request.tag] = likeliest(request.prompt, request.max_tokens);
  }
  for (const bool graphs : {false, true})
    EXPECT_EQ(expected, run(all, options(Policy::off, -1, 3, graphs), nullptr)) << graphs;
}

// Requests that join while a pass is under way, end in the middle of one by what they say, or leave for want
// of room; chains wait for every pass.
TEST_F(GpuPlainTest, SequencesThatComeAndGoChangeNoToken) {
  const auto heads = drafter("clover");
  auto all = requests(8, 0);
  Answers expected;
  std::set<size_t> lengths;
  for (Request& request : all) {
    request.sampling.temperature = request.tag % 3 == 0 ? 0.8 : 0;
    request.max_tokens = 22 + 3 * (request.tag % 4);
    Engine engine(*target_, heads.get(), *tokenizer_, options(Policy::chain, 3, 1, false));
    engine.submit(request);
    std::string said;
    while (!engine.idle())
      for (const Completion& done : engine.step()) said = done.text;
    if (request.tag % 2 == 0 && said.size() > 9) request.stop = {said.substr(said.size() / 2, 3)};
    expected.merge(run({request}, options(Policy::chain, 3, 1, false), heads.get()));
    lengths.insert(expected[request.tag].size());
  }
  EXPECT_GT(lengths.size(), 4u) << "stop strings end nothing";
  for (const bool scarce : {false, true}) {
    SCOPED_TRACE(scarce ? "little room, no graphs" : "room for all, graphs");
    const auto settings = [&](Policy policy, const model::Drafter* drafter) {
      EngineOptions chosen = options(policy, -1, 4, !scarce);
      const int64_t layers = drafter == nullptr ? 0 : drafter->kv_layers();
      if (scarce) chosen.kv_memory = 8 * model::KvCache::bytes_per_page(target_->kv_shape(layers), 8);
      chosen.suffix = chosen.suffix_answers = policy == Policy::automatic;
      return chosen;
    };
    EXPECT_EQ(expected, run(all, settings(Policy::off, nullptr), nullptr));
    EXPECT_EQ(stats_.preemptions > 0, scarce);
    EXPECT_GT(stats_.mixed_passes, 0);
    EXPECT_GT(stats_.steps_ahead, 0);
    // Guesses from text, and heads that are rarely asked: plain passes and others in turn.
    EXPECT_EQ(expected, run(all, settings(Policy::automatic, nullptr), nullptr));
    EXPECT_EQ(expected, run(all, settings(Policy::automatic, heads.get()), heads.get()));
  }
}

// What heads will read of a pass stays what it was while other passes of its shape run.
TEST_F(GpuPlainTest, FeaturesAreThoseOfTheTokensRead) {
  const auto all = requests(2, 0);
  const auto read_prompts = [&](model::KvCache& cache, std::vector<std::unique_ptr<LiveSequence>>& lives) {
    for (const Request& request : all) {
      lives.push_back(std::make_unique<LiveSequence>(request, *tokenizer_, target_->config().end_ids, false));
      lives.back()->admit(cache.open(), 0);
      test::read_text(*target_, request.prompt, 1 << 20, cache, lives.back()->seq_id());
      lives.back()->emit({9});
    }
  };
  for (const bool graphs : {false, true}) {
    model::GraphRunner graph_runner(target_->device(), graphs);
    const model::FeatureTaps taps{true, true, {1}};
    const EngineOptions engine_options;
    model::KvCache cache(target_->kv_shape(0), 64, 8);
    model::PassGraphs passes(*target_, cache, 4, graph_runner);
    PassRunner runner(*target_, cache, passes, graph_runner, taps, engine_options);
    std::vector<std::unique_ptr<LiveSequence>> lives;
    read_prompts(cache, lives);
    const int32_t other = cache.open();
    std::vector<int64_t> ids[2] = {all[0].prompt, all[1].prompt};
    for (auto& of : ids) of.push_back(9);
    DecodePass pass = runner.begin({lives[0].get(), lives[1].get()},
                                   {CandidateTree::of_root(9), CandidateTree::of_root(9)});
    for (int step = 0; step < 4; ++step) {
      DecodePass next = runner.begin_next(pass);
      model::RowBatch disturbance;  // of the same shape
      for (int32_t row = 0; row < 2; ++row) disturbance.add(50 + step, other, row - 1);
      disturbance.wanted_rows = {0, 1};
      for (const bool arg_max_only : {false, true}) {
        disturbance.arg_max_only = arg_max_only;
        passes.forward(disturbance, taps);
        cache.keep_rows(other, std::vector<int32_t>{}, target_->config().layers);
      }
      runner.wait(pass);
      for (int i = 0; i < 2; ++i) {
        const model::TargetOutput whole = test::read_text(*target_, ids[i], 1 << 20, taps.layers);
        for (const auto member : model::feature_members)
          EXPECT_TRUE(at::equal((whole.features.*member)[-1].cpu(), (pass.output.features.*member)[i].cpu()));
        const int64_t said = pass.target_tokens.tokens[i].item<int64_t>();
        EXPECT_EQ(said, whole.logits[-1].argmax().item<int64_t>()) << step;
        ids[i].push_back(said);
        lives[i]->emit({said});
      }
      pass = std::move(next);
    }
  }
}

}  // namespace
}  // namespace clover::infer
