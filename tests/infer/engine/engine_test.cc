#include "infer/engine/engine.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>

#include "data/files/error.h"
#include "kernels/cpu/threads.h"
#include "tests/infer/engine/engine_fixture.h"
#include "tests/support/damaged_target.h"

namespace clover::infer {
namespace {

TEST_F(EngineTest, TokensDependOnNothingButTheRequest) {
  for (const double temperature : {0.0, 0.8}) {
    const auto all = requests(20, temperature);
    const Answers expected = plain(all);
    auto random = model::make_drafter("clover", nlohmann::json::object(), target_->view(), {}, false, 3);
    random->freeze(at::kBFloat16);
    RecordedDrafter good(target_->config().vocab, record_of(all, expected), 0),
        mixed(target_->config().vocab, record_of(all, expected), 3),
        wrong(target_->config().vocab, record_of(all, expected), 1);
    int64_t settings = 0;
    for (model::Drafter* drafter :
         std::initializer_list<model::Drafter*>{&good, &mixed, &wrong, random.get()}) {
      for (const auto& [policy, budget] : {std::pair{Policy::off, -1},
                                           {Policy::chain, -1},
                                           {Policy::fixed_tree, 9},
                                           {Policy::clover, 1},
                                           {Policy::clover, 4},
                                           {Policy::clover, 16},
                                           {Policy::automatic, -1},
                                           {Policy::beam, -1},
                                           {Policy::best_first, 9}}) {
        for (const int64_t batch : {1, 3, 16}) {
          SCOPED_TRACE(to_string(policy) + " budget " + std::to_string(budget) + " batch " +
                       std::to_string(batch) + " temperature " + std::to_string(temperature));
          EngineOptions chosen = options(policy, budget, batch);
          chosen.page_size = batch == 3 ? 8 : 64;
          chosen.prefill_chunk = std::array{1, 7, 64, 0}[(++settings) % 4];
          chosen.suffix = policy != Policy::off && batch != 1;
          chosen.suffix_answers = batch == 3;
          kernels::set_threads(batch == 3 ? 1 : 2);
          expect_equal(expected, run(all, chosen, drafter));
        }
      }
    }
  }
}

// Trees of up to 256 rows, or of 64 in a large batch, which a pass holds together.
TEST_F(EngineTest, TreesOfHundredsOfNodesChangeNoToken) {
  const auto random =
      model::make_drafter("redrafter", nlohmann::json::object(), target_->view(), {}, false, 3);
  random->freeze(at::kBFloat16);
  for (const double temperature : {0.0, 0.8}) {
    auto all = requests(20, temperature);
    for (Request& request : all) request.max_tokens = 12;
    const Answers expected = plain(all);
    for (const Policy policy : {Policy::beam, Policy::best_first}) {
      for (const int64_t batch : {1, 3, 16}) {
        SCOPED_TRACE(to_string(policy) + " batch " + std::to_string(batch) + " temperature " +
                     std::to_string(temperature));
        EngineOptions chosen = options(policy, policy == Policy::best_first ? 255 : -1, batch);
        chosen.growth.width = 64;
        chosen.growth.depth = 8;
        expect_equal(expected, run(all, chosen, random.get()));
        const double rows_a_tree = static_cast<double>(stats_.rows) / static_cast<double>(stats_.passes);
        EXPECT_GT(rows_a_tree, batch == 16 ? 32 : 128);
        EXPECT_LE(stats_.rows, stats_.steps * (batch == 1 ? 256 : 1024));
      }
    }
  }
}

TEST_F(EngineTest, GoodGuessesSaveStepsAndBadOnesCostNone) {
  const auto all = requests(8, 0);
  const Answers expected = plain(all);
  const auto record = record_of(all, expected);
  RecordedDrafter good(target_->config().vocab, record, 0), wrong(target_->config().vocab, record, 1);
  run(all, options(Policy::chain, -1, 4), &good);
  EXPECT_GT(stats_.tokens_per_step(), 2.5);
  run(all, options(Policy::chain, -1, 4), &wrong);
  EXPECT_GE(stats_.tokens_per_step(), 1.0);
  run(all, options(Policy::off, -1, 4), &good);
  EXPECT_EQ(stats_.tokens_per_step(), 1.0);
}

// Whole trees are the oracle.
TEST_F(EngineTest, RecordedAnswersChangeNoStep) {
  std::vector<Request> all = requests(12, 0);
  for (Request& request : all) request.stop.clear();
  const Answers expected = plain(all);
  RecordedDrafter drafter(target_->config().vocab, record_of(all, expected), 3);
  const Answers with_trees = run(all, options(Policy::clover, 4, 5), &drafter);
  const int64_t tree_rows = stats_.rows, passes = stats_.passes;
  EXPECT_GT(stats_.tokens_per_step(), 1.2);

  EngineOptions recorded = options(Policy::clover, 4, 5);
  recorded.recorded_answers = true;
  for (Request& request : all)
    request.recorded =
        std::make_shared<RecordedAnswer>(expected.at(request.tag).token_ids, model::Features{});
  const auto expect_same_steps = [&](const Answers& found) {
    expect_equal(expected, found);
    for (const auto& [tag, answer] : found) {
      EXPECT_EQ(with_trees.at(tag).steps, answer.steps) << tag;
      EXPECT_EQ(with_trees.at(tag).accepted_histogram, answer.accepted_histogram) << tag;
    }
  };
  expect_same_steps(run(all, recorded, &drafter));
  EXPECT_LT(stats_.rows, tree_rows);
  EXPECT_EQ(stats_.passes, passes);
  EngineOptions scarce = recorded;
  scarce.page_size = 8;
  scarce.kv_memory = 14 * model::KvCache::bytes_per_page(target_->kv_shape(1), scarce.page_size);
  expect_equal(expected, run(all, scarce, &drafter));
  EXPECT_GT(stats_.preemptions, 0);

  EngineOptions wrong = recorded;
  wrong.growth.policy = Policy::automatic;
  EXPECT_ANY_THROW(run(all, wrong, &drafter));
  wrong = recorded;
  wrong.typical = true;
  EXPECT_ANY_THROW(run(all, wrong, &drafter));
  all[3].recorded = nullptr;
  EXPECT_ANY_THROW(run(all, recorded, &drafter));
}

// Medusa's paper (arXiv 2401.10774, section 2.3.1): only the most probable token has any probability there.
TEST_F(EngineTest, TypicalAcceptanceAtTemperatureZeroIsExact) {
  const std::vector<Request> all = requests(12, 0);
  const Answers expected = plain(all);
  RecordedDrafter drafter(target_->config().vocab, record_of(all, expected), 3);
  EngineOptions typical = options(Policy::clover, 4, 5);
  typical.typical = true;
  expect_equal(expected, run(all, typical, &drafter));
  EXPECT_GT(stats_.tokens_per_step(), 1.2);
}

TEST_F(EngineTest, GuessesFromTheTextNeedNoHeads) {
  std::vector<Request> all = requests(6, 0);
  for (Request& request : all) {
    request.max_tokens = 120;  // a random model soon goes round in circles
    request.stop.clear();
  }
  const Answers expected = plain(all);
  EngineOptions chosen = options(Policy::automatic, -1, 3);
  chosen.suffix = true;
  expect_equal(expected, run(all, chosen));
  // `auto` guesses where that pays by this machine's clock; a policy that always guesses shows what it can
  // have.
  EngineOptions always = options(Policy::chain, 4, 3);
  always.suffix = true;
  expect_equal(expected, run(all, always));
  EXPECT_GT(stats_.tokens_per_step(), 1.0);
}

// `auto` times passes of 8 rows, which no tree of one guess has, until three timings are known.
TEST_F(EngineTest, WhatPassesCostIsMeasuredInTheFirstRunsOnly) {
  const auto all = requests(2, 0);
  const Answers expected = plain(all);
  RecordedDrafter drafter(target_->config().vocab, record_of(all, expected), 0);
  EngineOptions chosen = options(Policy::automatic, 1, 1);
  const std::filesystem::path file = folder_ / "costs.json";
  chosen.costs = CostFile(file);
  const auto timings_of_8_rows = [&]() -> double {
    std::ifstream in(file);
    const nlohmann::json kept = nlohmann::json::parse(in);
    for (const nlohmann::json& point : kept["rows"])
      if (point[0] == 8) return point[2];
    return 0;
  };
  double timings = 0;
  for (int runs = 0; timings < 3; ++runs) {
    ASSERT_LT(runs, 30);
    expect_equal(expected, run(all, chosen, &drafter));
    timings = timings_of_8_rows();
    ASSERT_GT(timings, 0);
  }
  expect_equal(expected, run(all, chosen, &drafter));
  EXPECT_LT(timings_of_8_rows(), timings);  // not timed again, and so known a little less
}

TEST_F(EngineTest, LittleMemorySendsRequestsAwayAndLosesNothing) {
  for (const double temperature : {0.0, 0.8}) {
    auto all = requests(40, temperature);
    for (Request& request : all) request.max_tokens = 70 + request.tag % 9;
    const Answers expected = plain(all);
    RecordedDrafter mixed(target_->config().vocab, record_of(all, expected), 3);
    auto random = model::make_drafter("clover", nlohmann::json::object(), target_->view(), {}, false, 3);
    random->freeze(at::kBFloat16);
    auto writing = model::make_drafter("eagle", {{"heads", 3}}, target_->view(), {}, false, 3);
    writing->freeze(at::kBFloat16);
    for (const auto& [policy, drafter] :
         std::initializer_list<std::pair<Policy, model::Drafter*>>{{Policy::off, &mixed},
                                                                   {Policy::clover, &mixed},
                                                                   {Policy::chain, random.get()},
                                                                   {Policy::automatic, random.get()},
                                                                   {Policy::clover, writing.get()},
                                                                   {Policy::beam, writing.get()},
                                                                   {Policy::best_first, writing.get()}}) {
      SCOPED_TRACE(to_string(policy) + " temperature " + std::to_string(temperature));
      EngineOptions chosen = options(policy, -1, 16);
      chosen.page_size = 8;
      chosen.prefill_chunk = 16;
      chosen.suffix = policy == Policy::automatic;
      const int64_t page = model::KvCache::bytes_per_page(target_->kv_shape(1), chosen.page_size);
      chosen.kv_memory = 19 * page;  // the longest request may need 18 pages
      expect_equal(expected, run(all, chosen, drafter));
      EXPECT_GT(stats_.preemptions, 0);
    }
  }
}

// Its keys and values lie in pages that others take over.
TEST_F(EngineTest, ARequestWithoutNumbersFailsAlone) {
  const test::TemporaryFolder damaged;
  test::write_damaged_target(damaged, 128);
  target_ = model::Target::load(damaged, at::kBFloat16);
  for (const double temperature : {0.0, 0.8}) {
    auto all = requests(12, temperature);
    const Answers expected = plain(all);
    for (int64_t i = 0; i < 4; ++i) {
      Request broken = requests(1, temperature)[0];
      broken.tag = 100 + i;
      broken.prompt[5 * i] = 128;
      all.insert(all.begin() + 3 * i, broken);
    }
    EngineOptions chosen = options(Policy::clover, 4, 3);
    chosen.page_size = 8;
    chosen.kv_memory = 30 * model::KvCache::bytes_per_page(target_->kv_shape(1), chosen.page_size);
    const auto random =
        model::make_drafter("clover", nlohmann::json::object(), target_->view(), {}, false, 3);
    random->freeze(at::kBFloat16);
    Answers found = run(all, chosen, random.get());
    for (int64_t tag = 100; tag < 104; ++tag) {
      EXPECT_EQ(found.at(tag).finish_reason, "error");
      EXPECT_NE(found.at(tag).error.find("after 42 tokens are not numbers"), std::string::npos)
          << found.at(tag).error;
      found.erase(tag);
    }
    expect_equal(expected, found);
  }
}

// Heads that nobody asks take no memory from the target's keys and values.
TEST_F(EngineTest, WithoutDraftsTheCacheHasOnlyTheTargetsLayers) {
  const auto heads = model::make_drafter("clover", nlohmann::json::object(), target_->view(), {}, false, 3);
  heads->freeze(at::kBFloat16);
  ASSERT_EQ(heads->kv_layers(), 1);
  const Request request = requests(5, 0)[4];
  EngineOptions chosen = options(Policy::off, -1, 16);
  chosen.page_size = 8;
  const int64_t pages = (std::ssize(request.prompt) + request.max_tokens + 7) / 8;
  chosen.kv_memory = pages * model::KvCache::bytes_per_page(target_->kv_shape(0), chosen.page_size);
  Engine(*target_, heads.get(), *tokenizer_, chosen).submit(request);
  chosen.growth.policy = Policy::clover;
  EXPECT_THROW(Engine(*target_, heads.get(), *tokenizer_, chosen).submit(request), data::InputError);
}

TEST_F(EngineTest, ARequestThatCouldNeverFitIsRefused) {
  EngineOptions chosen = options(Policy::off, -1, 16);
  chosen.page_size = 8;
  chosen.kv_memory = 4 * model::KvCache::bytes_per_page(target_->kv_shape(0), chosen.page_size);
  Engine engine(*target_, nullptr, *tokenizer_, chosen);
  EXPECT_THROW(engine.submit(requests(5, 0)[4]), data::InputError);
}

}  // namespace
}  // namespace clover::infer
