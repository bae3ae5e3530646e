#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "infer/engine.h"
#include "kernels/gpu.h"
#include "model/heads_checkpoint.h"
#include "model/target.h"
#include "tests/support/reading.h"
#include "tests/support/stand_in_device.h"
#include "tests/support/temporary_folder.h"
#include "tiny_tokenizer.h"

// The whole engine as it runs on a GPU, on an emulated one: which tensor lies where, the CUDA kernels, and
// promise 1 (no setting changes a token) with them.
namespace clover::infer {
namespace {

using Answers = std::map<int64_t, std::vector<int64_t>>;  // token ids by tag

class EmulatedEngineTest : public testing::Test {
 protected:
  EmulatedEngineTest() {
    test::write_tiny_tokenizer(folder_);
    tokenizer_ = data::Tokenizer::load(folder_);
    target_ = model::Target::load(test::golden_target("tied-bf16"), at::kBFloat16, kernels::open_gpu(0));
  }

  static std::vector<Request> requests(int64_t count, double temperature) {
    std::vector<Request> all;
    for (int64_t tag = 0; tag < count; ++tag) {
      Request request;
      request.tag = tag;
      for (int64_t i = 0; i < 17 && tag % 2 == 0; ++i) request.prompt.push_back(3 + i * i % 120);
      for (int64_t i = 0; i <= tag % 5; ++i) request.prompt.push_back(5 + (tag * 31 + i * 7) % 120);
      request.sampling.temperature = temperature;
      request.random = {11, static_cast<uint64_t>(tag)};
      request.max_tokens = 5 + tag % 3 * 4;
      all.push_back(std::move(request));
    }
    return all;
  }

  static EngineOptions options(Policy policy, int64_t budget, int64_t max_batch, bool graphs = true) {
    EngineOptions options;
    options.growth.policy = policy;
    options.budget = budget;
    options.max_batch = max_batch;
    options.page_size = max_batch == 1 ? 64 : 8;
    options.prefill_chunk = max_batch == 1 ? 512 : 5;
    options.kv_memory = 4 << 20;
    options.graphs = graphs;
    return options;
  }

  Answers run(const std::vector<Request>& requests, EngineOptions options, model::Drafter* drafter) {
    Engine engine(*target_, drafter, *tokenizer_, options);
    for (const Request& request : requests) engine.submit(request);
    Answers answers;
    while (!engine.idle())
      for (Completion& done : engine.step()) answers[done.tag] = std::move(done.token_ids);
    stats_ = engine.stats();
    return answers;
  }

  std::shared_ptr<model::Drafter> drafter(const char* kind, const at::Tensor& token_map = {}) const {
    auto made = model::make_drafter(kind, nlohmann::json::object(), target_->view(), token_map, false, 3);
    made->freeze(at::kBFloat16);
    return made;
  }

  test::TemporaryFolder folder_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::unique_ptr<model::Target> target_;
  EngineStats stats_;
};

TEST_F(EmulatedEngineTest, TheTargetSaysWhatItSaysOnTheCpu) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 90; ++i) ids.push_back(3 + i * i % 120);
  const auto here = model::Target::load(test::golden_target("tied-bf16"), at::kBFloat16);
  const at::Tensor expected = test::read_text(*here, ids).logits;
  const at::Tensor found = test::read_text(*target_, ids).logits.cpu();
  EXPECT_LT((found - expected).abs().max().item<float>(), 0.02 * expected.abs().max().item<float>());
  EXPECT_TRUE(at::equal(found, test::read_text(*target_, ids, 7).logits.cpu())) << "read in chunks of 7";
}

TEST_F(EmulatedEngineTest, TokensDependOnNothingButTheRequest) {
  const auto clover = drafter("clover"), medusa = drafter("medusa"),
             trimmed = drafter("clover", at::arange(2, 120, 3, at::kLong));
  for (const double temperature : {0.0, 0.8}) {
    const auto all = requests(5, temperature);
    Answers expected;
    for (const Request& request : all)
      expected.merge(run({request}, options(Policy::off, -1, 1, false), nullptr));
    for (model::Drafter* guesser : {clover.get(), medusa.get(), trimmed.get()}) {
      for (const Policy policy :
           {Policy::off, Policy::chain, Policy::fixed_tree, Policy::clover, Policy::automatic}) {
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

// Waits keep a GPU idle: one for what the target says, one for each depth of the drafts.
TEST_F(EmulatedEngineTest, AStepWaitsForTheGpuOnceADepth) {
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
