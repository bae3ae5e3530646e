#include "infer/engine/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>
#include <tuple>

#include "tests/infer/requests/tiny_tokenizer.h"
#include "tests/support/temporary_folder.h"

namespace clover::infer {
namespace {

constexpr int64_t page_size = 4;

class SchedulerTest : public testing::Test {
 protected:
  SchedulerTest() {
    test::write_tiny_tokenizer(folder_);
    tokenizer_ = data::Tokenizer::load(folder_);
  }

  /// Submits a request.  The first `common` prompt tokens are the same in all requests.
  void submit(int64_t tag, int64_t prompt, int64_t max_tokens, int64_t common = 0) {
    Request request;
    request.tag = tag;
    for (int64_t i = 0; i < prompt; ++i) request.prompt.push_back(i < common ? i : 100 * tag + i);
    request.max_tokens = max_tokens;
    schedule_.submit(std::make_unique<LiveSequence>(std::move(request), *tokenizer_, no_end_, false));
  }

  /// Updates the cache as a pass over `rows` tokens would, all of which are kept.
  void read(int32_t sequence, int64_t rows) {
    model::RowBatch batch;
    for (int64_t row = 0; row < rows; ++row) batch.add(0, sequence, static_cast<int32_t>(row) - 1);
    cache_.place(batch);
    std::vector<int32_t> kept(rows);
    std::iota(kept.begin(), kept.end(), 0);
    cache_.keep_rows(sequence, kept, 1);
  }

  /// Lets all sequences join for which there is room, with their first tokens.  Returns their tags.
  std::vector<int64_t> join() {
    std::vector<int64_t> tags;
    for (;;) {
      const std::vector<PrefillChunk> chunks = next_prefill_chunks(1000);
      if (chunks.empty()) return tags;
      for (const PrefillChunk& chunk : chunks) {
        read(chunk.live->seq_id(), chunk.rows);
        if (!chunk.live->has_answer()) chunk.live->emit({7});
        tags.push_back(chunk.live->request().tag);
        schedule_.prefill_done(*chunk.live);
      }
    }
  }

  std::vector<PrefillChunk> next_prefill_chunks(int64_t most) {
    return schedule_.next_prefill_chunks(most, std::vector<int64_t>(schedule_.decoding().size(), 1));
  }

  /// Prefills the chunks of one pass of at most `most` rows, and returns them as (tag, begin, rows).
  using Read = std::tuple<int64_t, int64_t, int64_t>;
  std::vector<Read> pass(int64_t most) {
    std::vector<Read> reads;
    for (const PrefillChunk& chunk : next_prefill_chunks(most)) {
      reads.emplace_back(chunk.live->request().tag, chunk.begin, chunk.rows);
      read(chunk.live->seq_id(), chunk.rows);
      const std::span<const int64_t> ids = chunk.live->prefill_tokens();
      EXPECT_EQ(chunk.last, chunk.begin + chunk.rows == std::ssize(ids));
      if (!chunk.last) continue;
      cache_.publish(chunk.live->seq_id(), ids.first(ids.size() - 1));
      chunk.live->emit({7});
      schedule_.prefill_done(*chunk.live);
    }
    return reads;
  }

  /// A decode step: each decoding sequence reads its last token and gets another.
  void step() {
    for (const auto& live : schedule_.decoding()) {
      read(live->seq_id(), 1);
      live->emit({7});
    }
  }

  std::vector<int64_t> decoding() const {
    std::vector<int64_t> tags;
    for (const auto& live : schedule_.decoding()) tags.push_back(live->request().tag);
    return tags;
  }

  using Tags = std::vector<int64_t>;
  test::TemporaryFolder folder_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  const std::vector<int64_t> no_end_;
  model::KvCache cache_{{1, 1, 8, at::kFloat, {1, 1, 1, 1}}, 10, page_size};
  Scheduler schedule_{cache_, 3};
};

TEST_F(SchedulerTest, SequencesJoinInOrderUpToTheBatch) {
  for (int64_t tag = 1; tag <= 5; ++tag) submit(tag, 3, 3);
  EXPECT_EQ(join(), (Tags{1, 2, 3}));
  EXPECT_EQ(schedule_.waiting(), 2);
  step();
  step();  // the third token is the last
  EXPECT_EQ(schedule_.take_finished().size(), 3);
  EXPECT_EQ(join(), (Tags{4, 5}));
  EXPECT_EQ(cache_.free_pages(), 8);
}

TEST_F(SchedulerTest, APromptWaitsForRoomBesideWhatOthersNeedNext) {
  submit(1, 16, 12);
  submit(2, 17, 2);
  EXPECT_EQ(join(), (Tags{1})) << "4 + 5 pages fit into 10, but not beside 2 that the first needs soon";
  submit(3, 1, 1);
  EXPECT_EQ(join(), Tags{}) << "nobody overtakes";
  for (int i = 0; i < 11; ++i) step();
  schedule_.take_finished();
  EXPECT_EQ(join(), (Tags{2, 3}));
}

TEST_F(SchedulerTest, TheYoungestLeavesAndComesBackWhereItWas) {
  submit(1, 7, 30);
  submit(2, 7, 30);
  EXPECT_EQ(join(), (Tags{1, 2}));
  int64_t steps = 0;
  for (; schedule_.preemptions() == 0; ++steps) {
    schedule_.preempt_for_room();
    step();
  }
  EXPECT_EQ(decoding(), (Tags{1}));
  EXPECT_EQ(join(), Tags{}) << "it would be sent away again at once";
  EXPECT_EQ(schedule_.waiting(), 1);
  while (!schedule_.decoding().empty()) {
    schedule_.preempt_for_room();
    step();
    schedule_.take_finished();
  }
  const std::vector<PrefillChunk> chunks = next_prefill_chunks(1000);
  ASSERT_EQ(chunks.size(), 1u);
  const LiveSequence* back = chunks[0].live;
  // Prompt and answer but its last token: one token at first, one more each step but the one it missed.
  EXPECT_EQ(std::ssize(back->prefill_tokens()), 7 + steps - 1);
  EXPECT_EQ(back->root(), 7);
}

TEST_F(SchedulerTest, PromptsShareAPassUpToSoManyTokens) {
  submit(1, 3, 9);
  submit(2, 9, 9);
  submit(3, 2, 9);
  submit(4, 2, 9);
  EXPECT_EQ(pass(8), (std::vector<Read>{{1, 0, 3}, {2, 0, 5}}));
  EXPECT_EQ(decoding(), (Tags{1}));
  EXPECT_EQ(pass(5), (std::vector<Read>{{2, 5, 4}, {3, 0, 1}}));
  EXPECT_EQ(pass(5), (std::vector<Read>{{3, 1, 1}})) << "three are all that are decoded at once";
  EXPECT_EQ(decoding(), (Tags{1, 2, 3}));
}

TEST_F(SchedulerTest, WhatAnotherOneIsAboutToReadIsReadOnce) {
  submit(1, 10, 1, 9);
  submit(2, 11, 1, 9);
  submit(3, 5, 1);
  EXPECT_EQ(pass(6), (std::vector<Read>{{1, 0, 6}})) << "8 of the second's tokens fill pages of the first";
  EXPECT_EQ(pass(6), (std::vector<Read>{{1, 6, 4}, {3, 0, 2}}));
  EXPECT_EQ(pass(6), (std::vector<Read>{{2, 8, 3}, {3, 2, 3}}));
  EXPECT_EQ(decoding(), (Tags{1, 2, 3}));
  EXPECT_EQ(schedule_.shared_tokens(), 8);
}

TEST_F(SchedulerTest, NobodyWaitsForPromptsThatDifferEarly) {
  submit(1, 10, 1, 3);
  submit(2, 11, 1, 3);
  EXPECT_EQ(pass(100), (std::vector<Read>{{1, 0, 10}, {2, 0, 11}}));
}

// Four tokens are saved by waiting for eight, not for more.
TEST_F(SchedulerTest, NobodyWaitsForAPromptMuchLongerThanWhatIsSaved) {
  submit(1, 20, 1, 5);
  submit(2, 6, 1, 5);
  EXPECT_EQ(pass(11), (std::vector<Read>{{1, 0, 11}}));
  EXPECT_EQ(pass(10), (std::vector<Read>{{1, 11, 9}, {2, 0, 1}}));
}

// Three sequences of 14 tokens leave no room for a fourth page each of 10.
TEST_F(SchedulerTest, ThoseWhoJoinTogetherAllHaveRoomForTheirPrompts) {
  for (int64_t tag = 1; tag <= 3; ++tag) submit(tag, 14, 2);
  EXPECT_EQ(pass(6), (std::vector<Read>{{1, 0, 6}}));
  EXPECT_EQ(pass(20), (std::vector<Read>{{1, 6, 8}, {2, 0, 12}}));
  EXPECT_EQ(pass(20), (std::vector<Read>{{2, 12, 2}})) << "the third waits for four pages";
  step();
  schedule_.take_finished();
  EXPECT_EQ(pass(20), (std::vector<Read>{{3, 0, 14}}));
}

}  // namespace
}  // namespace clover::infer
