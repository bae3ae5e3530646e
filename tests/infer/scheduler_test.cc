#include "infer/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/temporary_folder.h"
#include "tiny_tokenizer.h"

namespace clover::infer {
namespace {

constexpr int64_t page_size = 4;

class SchedulerTest : public testing::Test {
 protected:
  SchedulerTest() {
    test::write_tiny_tokenizer(folder_);
    tokenizer_ = data::Tokenizer::load(folder_);
  }

  void submit(int64_t tag, int64_t prompt, int64_t max_tokens) {
    Request request;
    request.tag = tag;
    for (int64_t i = 0; i < prompt; ++i) request.prompt.push_back(100 * tag + i);
    request.max_tokens = max_tokens;
    schedule_.submit(std::make_unique<LiveSequence>(std::move(request), *tokenizer_, no_end_, false));
  }

  /// As a pass of the target over `rows` tokens that are all kept.
  void read(int32_t sequence, int64_t rows) {
    model::RowBatch batch;
    for (int64_t row = 0; row < rows; ++row) batch.add(0, sequence, static_cast<int32_t>(row) - 1);
    cache_.place(batch);
    std::vector<int32_t> kept(rows);
    std::iota(kept.begin(), kept.end(), 0);
    cache_.keep(sequence, kept, 1);
  }

  /// Lets every sequence join that can; a new one yields its first token.  Their tags.
  std::vector<int64_t> join() {
    std::vector<int64_t> tags;
    for (;;) {
      const std::vector<PromptChunk> chunks = next_chunks(1000);
      if (chunks.empty()) return tags;
      for (const PromptChunk& chunk : chunks) {
        read(chunk.live->sequence(), chunk.rows);
        if (!chunk.live->answered()) chunk.live->emit({7});
        tags.push_back(chunk.live->request().tag);
        schedule_.joined(*chunk.live);
      }
    }
  }

  std::vector<PromptChunk> next_chunks(int64_t most) {
    return schedule_.next_chunks(most, std::vector<int64_t>(schedule_.decoding().size(), 1));
  }

  /// Each decoding sequence reads its last token and yields another.
  void step() {
    for (const auto& live : schedule_.decoding()) {
      read(live->sequence(), 1);
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
  for (; schedule_.sent_away() == 0; ++steps) {
    schedule_.make_room();
    step();
  }
  EXPECT_EQ(decoding(), (Tags{1}));
  EXPECT_EQ(join(), Tags{}) << "it would be sent away again at once";
  EXPECT_EQ(schedule_.waiting(), 1);
  while (!schedule_.decoding().empty()) {
    schedule_.make_room();
    step();
    schedule_.take_finished();
  }
  const std::vector<PromptChunk> chunks = next_chunks(1000);
  ASSERT_EQ(chunks.size(), 1u);
  const LiveSequence* back = chunks[0].live;
  // Prompt and answer but its last token: one token at first, one more each step but the one it missed.
  EXPECT_EQ(std::ssize(back->to_read()), 7 + steps - 1);
  EXPECT_EQ(back->root(), 7);
}

}  // namespace
}  // namespace clover::infer
