#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "data/files/error.h"
#include "infer/controls/control_fields.h"
#include "tests/infer/engine/engine_fixture.h"
#include "tests/infer/engine/plain_controls.h"

// Requests with logit controls (penalties, bans, biases): drafting must not change their tokens either.
namespace clover::infer {
namespace {

class ControlledEngineTest : public EngineTest {
 protected:
  std::vector<Request> controlled(int64_t count, double temperature) const {
    auto all = requests(count, temperature);
    for (Request& request : all) {
      request.controls = test::some_controls(request.tag);
      request.stop.clear();
      request.max_tokens += 12;
    }
    return all;
  }
};

TEST_F(ControlledEngineTest, TokensAreThoseOfReadingTheWholeTextAnew) {
  for (const double temperature : {0.0, 0.8}) {
    auto all = controlled(26, temperature);
    for (Request& request : all) request.sampling.min_p = request.tag % 4 == 1 ? 0.2 : 0;
    int64_t differ = 0;
    const Answers found = plain(all);
    for (const Request& request : all) {
      Request without = request;
      without.controls = nullptr;
      const std::vector<int64_t> expected = test::answered_plainly(*target_, request);
      EXPECT_EQ(found.at(request.tag).token_ids, expected) << request.tag << " at " << temperature;
      differ += request.controls && test::answered_plainly(*target_, without) != expected;
    }
    EXPECT_GT(differ, 9) << "controls that change nothing test nothing";
  }
}

TEST_F(ControlledEngineTest, GuessesChangeNoToken) {
  for (const double temperature : {0.0, 0.8}) {
    const auto all = controlled(26, temperature);
    const Answers expected = plain(all);
    auto random = model::make_drafter("clover", nlohmann::json::object(), target_->view(), {}, false, 3);
    random->freeze(at::kBFloat16);
    RecordedDrafter good(target_->config().vocab, record_of(all, expected), 0),
        mixed(target_->config().vocab, record_of(all, expected), 3);
    for (model::Drafter* drafter : std::initializer_list<model::Drafter*>{&good, &mixed, random.get()}) {
      for (const auto& [policy, budget] : {std::pair{Policy::off, -1},
                                           {Policy::chain, -1},
                                           {Policy::fixed_tree, 9},
                                           {Policy::clover, 16},
                                           {Policy::automatic, -1}}) {
        for (const int64_t batch : {1, 3, 16}) {
          SCOPED_TRACE(to_string(policy) + " batch " + std::to_string(batch) + " temperature " +
                       std::to_string(temperature));
          EngineOptions chosen = options(policy, budget, batch);
          chosen.page_size = batch == 3 ? 8 : 64;
          if (batch == 3) {  // so little that some have to leave and come back
            const int64_t layers = drafter->kv_layers();
            chosen.kv_memory = 16 * model::KvCache::bytes_per_page(target_->kv_shape(layers), 8);
          }
          chosen.prefill_chunk = batch == 16 ? 7 : 64;
          chosen.suffix = policy != Policy::off && batch != 1;
          chosen.suffix_answers = batch == 3;
          expect_equal(expected, run(all, chosen, drafter));
          if (drafter == &good && policy == Policy::chain) {
            EXPECT_GT(stats_.tokens_per_step(), 1.5);
          }
        }
      }
    }
  }
}

TEST_F(ControlledEngineTest, IdsThatAreNoneAreRefused) {
  Request request = requests(1, 0)[0];
  request.controls = std::make_shared<const LogitControls>(LogitControls{.bias = {{130, 1.0}}});
  Engine engine(*target_, nullptr, *tokenizer_, options(Policy::off, -1, 1));
  EXPECT_THROW(engine.submit(request), data::InputError);
}

// scripts/goldens/make_control_goldens.py: transformers' generate, greedy, in fp32.
TEST_F(ControlledEngineTest, AnswersAreTransformers) {
  std::ifstream file(test::goldens() / "controls.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_GE(golden["cases"].size(), 40u);
  for (const nlohmann::json& one : golden["cases"]) {
    const std::string name = one["target"];
    target_ = model::Target::load(test::golden_target(name), at::kFloat);
    Request request;
    request.prompt = one["prompt"].get<std::vector<int64_t>>();
    request.max_tokens = one["max_new_tokens"];
    const nlohmann::json& asked = golden["controls"][one["controls"].get<size_t>()];
    ControlFields fields;
    read_controls(asked, fields);
    request.controls = resolve_controls(fields, *tokenizer_);
    const auto expected = one["ids"].get<std::vector<int64_t>>();
    EXPECT_EQ(run({request}, options(Policy::off, -1, 1)).at(0).token_ids, expected) << asked;
    EngineOptions guessing = options(Policy::automatic, -1, 1);
    guessing.suffix = true;
    EXPECT_EQ(run({request}, guessing).at(0).token_ids, expected) << asked;
  }
}

}  // namespace
}  // namespace clover::infer
