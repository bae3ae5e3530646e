#include <gtest/gtest.h>

#include <chrono>

#include "tests/infer/engine/engine_fixture.h"

// Requests that join while others decode: which prompt tokens each pass prefills, and which requests wait.
namespace clover::infer {
namespace {

using JoiningTest = EngineTest;

TEST_F(JoiningTest, ASharedBeginningIsReadOnce) {
  std::vector<Request> alike;
  for (const Request& request : requests(20, 0))
    if (request.tag % 2 == 0) alike.push_back(request);
  const Answers expected = plain(alike);
  RecordedDrafter drafter(target_->config().vocab, record_of(alike, expected), 0);
  EngineOptions chosen = options(Policy::clover, 4, 3);
  chosen.page_size = 8;
  expect_equal(expected, run(alike, chosen, &drafter));
  EXPECT_GE(stats_.shared_prompt_tokens, std::ssize(alike) * 40 - 40);
  // 41 tokens fill no page of 64, but the rows of 40 can be copied.
  expect_equal(expected, run(alike, options(Policy::clover, 4, 3), &drafter));
  EXPECT_GE(stats_.shared_prompt_tokens, std::ssize(alike) * 40 - 40);
}

// They join in one pass, whatever its size, and the target computes what they have in common once.
TEST_F(JoiningTest, ASystemPromptIsReadOnceHoweverManyJoinWithIt) {
  constexpr int64_t count = 200, common = 500, own = 6;
  model::TargetConfig config = target_->config();
  config.context = 1024;
  target_ = model::Target::random(config, at::kBFloat16);
  std::vector<Request> all;
  for (int64_t tag = 0; tag < count; ++tag) {
    Request request;
    request.tag = tag;
    request.max_tokens = 1 + tag % 4;
    for (int64_t i = 0; i < common; ++i) request.prompt.push_back(3 + i * i % 120);
    for (int64_t i = 0; i < own; ++i) request.prompt.push_back(5 + (tag * (i + 1)) % 120);
    all.push_back(std::move(request));
  }
  Answers expected;
  for (const auto& [batch, chunk] : {std::pair<int64_t, int64_t>{200, 0}, {200, 64}, {200, 2048}, {16, 0}}) {
    SCOPED_TRACE("batch " + std::to_string(batch) + ", chunk " + std::to_string(chunk));
    EngineOptions chosen = options(Policy::off, -1, batch);
    chosen.prefill_chunk = chunk;
    const Answers found = run(all, chosen);
    EXPECT_EQ(stats_.prompt_tokens, count * (common + own));
    // A token more of each: the last common one stands before different ones.
    EXPECT_LE(stats_.prompt_rows, common + count * (own + 1));
    EXPECT_EQ(stats_.prompt_rows + stats_.shared_prompt_tokens, stats_.prompt_tokens);
    if (expected.empty()) expected = plain({all[0], all[7], all[199]});
    for (const auto& [tag, answer] : expected) EXPECT_EQ(answer.token_ids, found.at(tag).token_ids);
  }
}

TEST_F(JoiningTest, PromptsThatJoinTogetherShareAPass) {
  std::vector<Request> all;
  int64_t tokens = 0;
  for (const Request& request : requests(24, 0))
    if (request.tag % 2 == 1) tokens += std::ssize(all.emplace_back(request).prompt);
  const Answers expected = plain(all);
  EngineOptions chosen = options(Policy::off, -1, 16);
  chosen.prefill_chunk = 50;
  expect_equal(expected, run(all, chosen));
  EXPECT_EQ(stats_.prompt_rows, tokens);
  EXPECT_EQ(stats_.prompt_passes, (tokens + 49) / 50);
  EXPECT_EQ(stats_.mixed_passes, stats_.prompt_passes - 1) << "those read first decode meanwhile";
}

// At every step whoever has its first token gets another one, and the pass reads no more than a chunk beside.
TEST_F(JoiningTest, NobodyWaitsLongerThanForOnePass) {
  auto all = requests(30, 0);
  for (Request& request : all) {
    request.stop.clear();
    for (int64_t i = 0; i < 100 && request.tag % 5 == 1; ++i) request.prompt.push_back(5 + i % 90);
  }
  const Answers expected = plain(all);
  RecordedDrafter mixed(target_->config().vocab, record_of(all, expected), 3);
  for (const auto& [policy, chunk] : {std::pair<Policy, int64_t>{Policy::off, 1},
                                      {Policy::off, 7},
                                      {Policy::clover, 7},
                                      {Policy::automatic, 64}}) {
    SCOPED_TRACE(to_string(policy) + " chunk " + std::to_string(chunk));
    EngineOptions chosen = options(policy, -1, 5);
    chosen.prefill_chunk = chunk;
    Engine engine(*target_, &mixed, *tokenizer_, chosen);
    for (const Request& request : all) engine.submit(request);
    Answers answers;
    const EngineStats& now = engine.stats();
    while (!engine.idle()) {
      const EngineStats before = now;
      const int64_t decoding = before.first_tokens - before.requests;
      for (Completion& done : engine.step()) answers.emplace(done.tag, std::move(done));
      ASSERT_EQ(now.passes - before.passes, decoding);
      ASSERT_GE(now.tokens - before.tokens, decoding);
      ASSERT_LE(now.prompt_rows - before.prompt_rows, chunk);
    }
    expect_equal(expected, answers);
    EXPECT_GT(now.mixed_passes, 10);
  }
}

// A pass that reads and decodes is counted for both, and as nothing more.
TEST_F(JoiningTest, SecondsOfReadingAndDecodingAreThoseOfThePasses) {
  auto all = requests(30, 0);
  EngineOptions chosen = options(Policy::off, -1, 4);
  chosen.prefill_chunk = 16;
  Engine engine(*target_, nullptr, *tokenizer_, chosen);
  for (const Request& request : all) engine.submit(request);
  const EngineStats& now = engine.stats();
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  while (!engine.idle()) {
    const EngineStats before = now;
    engine.step();
    const bool read = now.prompt_passes > before.prompt_passes, decoded = now.steps > before.steps;
    EXPECT_EQ(now.prefill_seconds > before.prefill_seconds, read);
    EXPECT_EQ(now.decode_seconds > before.decode_seconds, decoded);
    EXPECT_LE(now.prefill_seconds + now.decode_seconds, passed());
  }
  EXPECT_GT(now.prefill_seconds + now.decode_seconds, passed() / 2);
  EXPECT_GT(now.mixed_passes, 0);
  EXPECT_LE(now.target_seconds, now.decode_seconds);
}

TEST_F(JoiningTest, DecodingGoesOnWhileALongPromptIsRead) {
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
