#pragma once

#include <gtest/gtest.h>

#include <map>

#include "infer/engine/engine.h"
#include "model/target/target.h"
#include "tests/infer/engine/scripted_drafter.h"
#include "tests/infer/requests/tiny_tokenizer.h"
#include "tests/support/reading.h"
#include "tests/support/temporary_folder.h"

namespace clover::infer {

using Answers = std::map<int64_t, Completion>;  // by tag

/// Guesses the tokens of a recorded decoding, by position and previous token.  Guesses are wrong where two
/// requests differ there, and at every `wrong`-th position (0: none).  It has one KV layer, so that pages
/// hold rows of it.
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
    engine.save_costs();
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

}  // namespace clover::infer
