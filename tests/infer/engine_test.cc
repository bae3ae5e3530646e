#include "infer/engine.h"

#include <gtest/gtest.h>

#include <map>

#include "data/error.h"
#include "kernels/threads.h"
#include "model/target.h"
#include "scripted_drafter.h"
#include "tests/support/damaged_target.h"
#include "tests/support/reading.h"
#include "tests/support/temporary_folder.h"
#include "tiny_tokenizer.h"

namespace clover::infer {
namespace {

using Answers = std::map<int64_t, Completion>;  // by tag

/// Guesses what a recorded decoding said at that position after that token: mostly right, and wrong where two
/// requests disagree or `wrong` says so.  It has a layer of its own, so that pages hold something of it.
class RecordedDrafter : public ScriptedDrafter {
 public:
  using Record = std::map<std::pair<int64_t, int64_t>, int64_t>;  // position, token -> next token
  RecordedDrafter(int64_t vocab, Record record, int64_t wrong)
      : ScriptedDrafter(vocab, 3, [this](const Path& path) { return logits_after(path); }),
        vocab_(vocab),
        record_(std::move(record)),
        wrong_(wrong) {
    freeze(at::kFloat);
  }

  int64_t kv_layers() const override { return 1; }

  model::DraftState prime(const model::Features&, const at::Tensor& next_ids, std::span<const model::Segment>,
                          const at::Tensor& frontier, model::DraftKv* kv) override {
    std::vector<int64_t> starts;
    for (const int64_t row : test::to_ids(frontier)) {
      const int64_t position = kv->placement.rows.contiguous[row].item<int64_t>();  // of the token after it
      starts.push_back(position * vocab_ + next_ids[row].item<int64_t>());
    }
    return starts.empty() ? model::DraftState{at::empty({0, 1})} : start(starts);
  }

 private:
  std::vector<float> logits_after(const Path& path) const {
    const int64_t position = path[0] / vocab_ + std::ssize(path) - 1;
    const int64_t token = path.size() > 1 ? path.back() : path[0] % vocab_;
    std::vector<float> logits(vocab_, 0.0f);
    const auto known = record_.find({position, token});
    int64_t guess = known == record_.end() ? 7 : known->second;
    if (wrong_ > 0 && position % wrong_ == 0) guess = (guess + 1) % vocab_;
    logits[guess] = 6;
    logits[(guess + 3) % vocab_] = 4;
    return logits;
  }

  int64_t vocab_;
  Record record_;
  int64_t wrong_;
};

class EngineTest : public testing::Test {
 protected:
  EngineTest() {
    test::write_tiny_tokenizer(folder_);
    tokenizer_ = data::Tokenizer::load(folder_);
    target_ = model::Target::load(test::golden_target("tied-bf16"), at::kBFloat16);
  }

  /// Requests of many lengths; those with an even tag share their first 41 tokens.
  std::vector<Request> requests(int64_t count, double temperature) const {
    std::vector<Request> all;
    for (int64_t tag = 0; tag < count; ++tag) {
      Request request;
      request.tag = tag;
      for (int64_t i = 0; i < 41 && tag % 2 == 0; ++i) request.prompt.push_back(3 + i * i % 120);
      for (int64_t i = 0; i <= tag % 7 * 3; ++i) request.prompt.push_back(5 + (tag * 31 + i * 7) % 120);
      request.sampling.temperature = temperature;
      if (tag % 3 == 1) request.sampling.top_p = 0.8;
      if (tag % 3 == 2) request.sampling.top_k = 20;
      request.random = {11, static_cast<uint64_t>(tag)};
      request.max_tokens = 6 + tag % 5 * 9;
      if (tag % 4 == 3) request.stop = {"e", "zz"};
      all.push_back(std::move(request));
    }
    return all;
  }

  Answers run(const std::vector<Request>& requests, EngineOptions options,
              model::Drafter* drafter = nullptr) {
    Engine engine(*target_, drafter, *tokenizer_, options);
    for (const Request& request : requests) engine.submit(request);
    Answers answers;
    while (!engine.idle())
      for (Completion& done : engine.step()) {
        const int64_t tag = done.tag;
        EXPECT_TRUE(answers.emplace(tag, std::move(done)).second) << "request " << tag << " finished twice";
      }
    engine.keep_costs();
    stats_ = engine.stats();
    return answers;
  }

  Answers plain(const std::vector<Request>& requests) {
    Answers answers;  // each in an engine of its own: nothing can be shared
    for (const Request& request : requests) answers.merge(run({request}, options(Policy::off, -1, 1)));
    return answers;
  }

  static EngineOptions options(Policy policy, int64_t budget, int64_t max_batch) {
    EngineOptions options;
    options.growth.policy = policy;
    options.budget = budget;
    options.max_batch = max_batch;
    options.kv_memory = 64 << 20;
    return options;
  }

  RecordedDrafter::Record record_of(const std::vector<Request>& requests, const Answers& answers) const {
    RecordedDrafter::Record record;
    for (const Request& request : requests) {
      int64_t position = static_cast<int64_t>(request.prompt.size()), before = -1;
      for (const int64_t token : answers.at(request.tag).token_ids) {
        if (before >= 0) record[{position - 1, before}] = token;
        before = token;
        ++position;
      }
    }
    return record;
  }

  static void expect_equal(const Answers& expected, const Answers& found) {
    ASSERT_EQ(expected.size(), found.size());
    for (const auto& [tag, answer] : expected) {
      EXPECT_EQ(answer.token_ids, found.at(tag).token_ids) << "request " << tag;
      EXPECT_EQ(answer.text, found.at(tag).text) << "request " << tag;
      EXPECT_EQ(answer.finish_reason, found.at(tag).finish_reason) << "request " << tag;
    }
  }

  test::TemporaryFolder folder_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::unique_ptr<model::Target> target_;
  EngineStats stats_;
};

TEST_F(EngineTest, TokensDependOnNothingButTheRequest) {
  for (const double temperature : {0.0, 0.8}) {
    const auto all = requests(20, temperature);
    const Answers expected = plain(all);
    auto random = model::make_drafter("clover", nlohmann::json::object(), target_->view(), {}, false, 3);
    random->freeze(at::kBFloat16);
    RecordedDrafter good(target_->config().vocab, record_of(all, expected), 0),
        mixed(target_->config().vocab, record_of(all, expected), 3),
        wrong(target_->config().vocab, record_of(all, expected), 1);
    for (model::Drafter* drafter :
         std::initializer_list<model::Drafter*>{&good, &mixed, &wrong, random.get()}) {
      for (const auto& [policy, budget] : {std::pair{Policy::off, -1},
                                           {Policy::chain, -1},
                                           {Policy::fixed_tree, 9},
                                           {Policy::clover, 1},
                                           {Policy::clover, 4},
                                           {Policy::clover, 16},
                                           {Policy::automatic, -1}}) {
        for (const int64_t batch : {1, 3, 16}) {
          SCOPED_TRACE(to_string(policy) + " budget " + std::to_string(budget) + " batch " +
                       std::to_string(batch) + " temperature " + std::to_string(temperature));
          EngineOptions chosen = options(policy, budget, batch);
          chosen.page_size = batch == 3 ? 8 : 64;
          chosen.prefill_chunk = batch == 16 ? 512 : 5;
          chosen.suffix = policy != Policy::off && batch != 1;
          chosen.suffix_answers = batch == 3;
          kernels::set_threads(batch == 3 ? 1 : 2);
          expect_equal(expected, run(all, chosen, drafter));
        }
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

TEST_F(EngineTest, ASharedBeginningIsReadOnce) {
  std::vector<Request> alike;
  for (const Request& request : requests(20, 0))
    if (request.tag % 2 == 0) alike.push_back(request);
  const Answers expected = plain(alike);
  RecordedDrafter drafter(target_->config().vocab, record_of(alike, expected), 0);
  EngineOptions chosen = options(Policy::clover, 4, 3);
  chosen.page_size = 8;
  expect_equal(expected, run(alike, chosen, &drafter));
  EXPECT_GE(stats_.shared_prompt_tokens, std::ssize(alike) * 40 - 40);
  expect_equal(expected, run(alike, options(Policy::off, -1, 3)));
  EXPECT_EQ(stats_.shared_prompt_tokens, 0) << "41 tokens fill no page of 64";
}

TEST_F(EngineTest, LittleMemorySendsRequestsAwayAndLosesNothing) {
  for (const double temperature : {0.0, 0.8}) {
    auto all = requests(40, temperature);
    for (Request& request : all) request.max_tokens = 70 + request.tag % 9;
    const Answers expected = plain(all);
    RecordedDrafter mixed(target_->config().vocab, record_of(all, expected), 3);
    auto random = model::make_drafter("clover", nlohmann::json::object(), target_->view(), {}, false, 3);
    random->freeze(at::kBFloat16);
    for (const auto& [policy, drafter] :
         std::initializer_list<std::pair<Policy, model::Drafter*>>{{Policy::off, &mixed},
                                                                   {Policy::clover, &mixed},
                                                                   {Policy::chain, random.get()},
                                                                   {Policy::automatic, random.get()}}) {
      SCOPED_TRACE(to_string(policy) + " temperature " + std::to_string(temperature));
      EngineOptions chosen = options(policy, -1, 16);
      chosen.page_size = 8;
      chosen.prefill_chunk = 16;
      chosen.suffix = policy == Policy::automatic;
      const int64_t page = model::KvCache::bytes_per_page(target_->kv_shape(1), chosen.page_size);
      chosen.kv_memory = 19 * page;  // the longest request may need 18 pages
      expect_equal(expected, run(all, chosen, drafter));
      EXPECT_GT(stats_.sent_away, 0);
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

TEST_F(EngineTest, ARequestThatCouldNeverFitIsRefused) {
  EngineOptions chosen = options(Policy::off, -1, 16);
  chosen.page_size = 8;
  chosen.kv_memory = 4 * model::KvCache::bytes_per_page(target_->kv_shape(0), chosen.page_size);
  Engine engine(*target_, nullptr, *tokenizer_, chosen);
  EXPECT_THROW(engine.submit(requests(5, 0)[4]), data::InputError);
}

TEST_F(EngineTest, DecodingGoesOnWhileALongPromptIsRead) {
  Request chatting = requests(2, 0)[1], lengthy = chatting;
  chatting.stop.clear();
  chatting.max_tokens = 100;
  lengthy.tag = 2;
  for (int64_t i = 0; i < 100; ++i) lengthy.prompt.push_back(5 + i % 90);
  const Answers expected = plain({chatting, lengthy});
  EngineOptions chosen = options(Policy::off, -1, 4);
  chosen.prefill_chunk = 5;
  Engine engine(*target_, nullptr, *tokenizer_, chosen);
  engine.submit(chatting);
  Answers answers;
  const auto step = [&] {
    for (Completion& done : engine.step()) answers.emplace(done.tag, std::move(done));
  };
  step();
  engine.submit(lengthy);
  const int64_t before = engine.stats().passes;
  while (engine.stats().first_tokens < 2) step();
  EXPECT_GE(engine.stats().passes - before, std::ssize(lengthy.prompt) / 5 - 1) << "a step for every chunk";
  while (!engine.idle()) step();
  expect_equal(expected, answers);
}

}  // namespace
}  // namespace clover::infer
