#include "model/cache/kv_cache.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace clover::model {
namespace {

KvShape tiny_shape() {
  return {2, 1, 8, at::kFloat, {1.0, 0.1, 0.01, 0.001}};
}

std::vector<int32_t> values(const at::Tensor& tensor) {
  return {tensor.data_ptr<int32_t>(), tensor.data_ptr<int32_t>() + tensor.numel()};
}

RowBatch chain(int32_t sequence, int64_t rows) {
  RowBatch batch;
  for (int64_t row = 0; row < rows; ++row) batch.add(0, sequence, static_cast<int32_t>(row) - 1);
  return batch;
}

TEST(KvCache, ChainsAreOneRunOfSlots) {
  KvCache cache(tiny_shape(), 8, 4);
  const int32_t sequence = cache.open();
  const Placement placement = cache.place(chain(sequence, 6));
  EXPECT_EQ(values(placement.rows.contiguous), (std::vector<int32_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(placement.rows.path.numel(), 0);
}

TEST(KvCache, TreePathsFollowParents) {
  KvCache cache(tiny_shape(), 8, 4);
  const int32_t sequence = cache.open();
  cache.place(chain(sequence, 3));
  cache.keep_rows(sequence, std::vector<int32_t>{0, 1, 2}, 2);
  RowBatch batch;
  for (const int32_t parent : {-1, 0, 0, 2, 1}) batch.add(0, sequence, parent);
  const Placement placement = cache.place(batch);
  // slots 3 (root), 4, 5, 6, 7; the row under the second child passes slot 5, the last one slots 4 and 7
  EXPECT_EQ(values(placement.rows.contiguous), (std::vector<int32_t>{4, 5, 4, 4, 5}));
  EXPECT_EQ(values(placement.rows.path_begin), (std::vector<int32_t>{0, 0, 0, 1, 3, 4}));
  EXPECT_EQ(values(placement.rows.path), (std::vector<int32_t>{5, 5, 6, 7}));
}

TEST(KvCache, KeepMovesTheAcceptedRowsTogetherAndFreesPages) {
  KvCache cache(tiny_shape(), 4, 4);
  const int32_t sequence = cache.open();
  RowBatch batch;
  for (const int32_t parent : {-1, 0, 0, 1, 2, 2, 5, 6, 7}) batch.add(0, sequence, parent);
  const Placement placement = cache.place(batch);
  at::Tensor keys = cache.keys(1).view({-1, 8});
  for (int64_t row = 0; row < batch.size(); ++row) {
    keys[placement.slots[row].item<int64_t>()].fill_(static_cast<double>(row));
  }
  EXPECT_EQ(cache.free_pages(), 1);
  cache.keep_rows(sequence, std::vector<int32_t>{0, 2, 5, 6}, 2);
  EXPECT_EQ(cache.length(sequence), 4);
  EXPECT_EQ(cache.free_pages(), 3);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(keys[placement.slots[i].item<int64_t>()][0].item<float>(), (std::vector<float>{0, 2, 5, 6})[i]);
  }
}

TEST(KvCache, PagesComeBackWhenASequenceLeaves) {
  KvCache cache(tiny_shape(), 3, 4);
  const int32_t first = cache.open(), second = cache.open();
  cache.place(chain(first, 8));
  EXPECT_TRUE(cache.fits(second, 4));
  EXPECT_FALSE(cache.fits(second, 5));
  EXPECT_THROW(cache.place(chain(second, 5)), c10::Error);
  cache.close(first);
  EXPECT_TRUE(cache.fits(second, 8));
  EXPECT_EQ(cache.open(), first);
}

TEST(KvCache, RefusesAParentOfAnotherSequence) {
  KvCache cache(tiny_shape(), 8, 4);
  RowBatch batch;
  batch.add(0, cache.open(), -1);
  batch.add(0, cache.open(), 0);
  EXPECT_THROW(cache.place(batch), c10::Error);
}

/// Reads `ids` into a new sequence, sharing what it can; returns the sequence and how much was shared.
std::pair<int32_t, int64_t> read(KvCache& cache, const std::vector<int64_t>& ids) {
  const int32_t sequence = cache.open();
  const int64_t shared = cache.share_prefix(sequence, ids), rest = std::ssize(ids) - shared;
  cache.place(chain(sequence, rest));
  std::vector<int32_t> kept;
  for (int32_t row = 0; row < rest; ++row) kept.push_back(row);
  cache.keep_rows(sequence, kept, 2);
  cache.publish(sequence, ids);
  return {sequence, shared};
}

TEST(KvCache, SequencesThatBeginAlikeShareFullPages) {
  KvCache cache(tiny_shape(), 16, 4);
  const std::vector<int64_t> ids = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto [first, nothing] = read(cache, ids);
  EXPECT_EQ(nothing, 0);
  EXPECT_EQ(cache.free_pages(), 13);
  const auto [second, shared] = read(cache, ids);
  EXPECT_EQ(shared, 8);
  EXPECT_EQ(cache.free_pages(), 12) << "one page more";
  EXPECT_EQ(read(cache, {1, 2, 3, 4, 5, 6, 7, 0, 9}).second, 4);
  EXPECT_EQ(read(cache, {2, 2, 3, 4, 5}).second, 0);
  EXPECT_EQ(read(cache, {1, 2, 3, 4}).second, 0) << "the last token's logits are wanted";
  cache.close(first);
  EXPECT_EQ(read(cache, ids).second, 8) << "the second still uses them";
}

TEST(KvCache, PublishedPagesStayUntilTheRoomIsNeeded) {
  KvCache cache(tiny_shape(), 8, 4);
  const std::vector<int64_t> ids = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  cache.close(read(cache, ids).first);
  EXPECT_EQ(cache.free_pages(), 8);
  const auto [again, shared] = read(cache, ids);
  EXPECT_EQ(shared, 8);
  cache.close(again);
  const int32_t large = cache.open();
  EXPECT_TRUE(cache.fits(large, 32));
  cache.place(chain(large, 32));  // takes the idle pages too
  cache.keep_rows(large, {}, 2);
  cache.close(large);
  EXPECT_EQ(read(cache, ids).second, 0);
}

TEST(KvCache, OldPagesNeverComeBackUnderANewName) {
  constexpr int64_t page = 4;
  KvCache cache(tiny_shape(), 8, page);
  int64_t copied = 0;
  for (int64_t round = 0; round < 200; ++round) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 3 + round % 13; ++i) ids.push_back(i < 2 ? 1 : (round * 7 + i * i) % 3);
    const int32_t sequence = cache.open();
    const int64_t in_pages = cache.share_prefix(sequence, ids), shared = cache.copy_page_rows(sequence, ids);
    ASSERT_LT(shared, std::ssize(ids));
    copied += shared - in_pages;
    at::Tensor keys = cache.keys(0).view({-1, 8});
    const Placement placement = cache.place(chain(sequence, std::ssize(ids) - shared));
    // Every slot is marked with the whole text before it, so a page taken for another's would show.
    double text = 1;
    std::vector<double> marks;
    for (const int64_t id : ids) marks.push_back(text = std::fmod(text * 5 + static_cast<double>(id), 9973));
    for (int64_t i = shared; i < std::ssize(ids); ++i)
      keys[placement.slots[i - shared].item<int64_t>()].fill_(marks[i]);
    std::vector<int32_t> kept;
    for (int32_t row = 0; row < std::ssize(ids) - shared; ++row) kept.push_back(row);
    cache.keep_rows(sequence, kept, 2);
    cache.publish(sequence, ids);
    const at::Tensor table = cache.place(chain(sequence, 1)).rows.page_table;
    for (int64_t i = 0; i < std::ssize(ids); ++i) {
      const int64_t slot = table[0][i / page].item<int32_t>() * page + i % page;
      ASSERT_EQ(keys[slot][0].item<double>(), marks[i]) << "round " << round << ", token " << i;
    }
    cache.keep_rows(sequence, {}, 2);
    cache.close(sequence);
  }
  EXPECT_GT(copied, 50);
}

TEST(KvCache, TheBeginningOfAPageIsCopied) {
  KvCache cache(tiny_shape(), 16, 4);
  const auto [first, nothing] = read(cache, {1, 2, 3, 4, 5, 6, 7});
  const auto copied = [&](const std::vector<int64_t>& ids) {
    const int32_t sequence = cache.open();
    const int64_t shared = cache.share_prefix(sequence, ids), known = cache.copyable_page_rows(sequence, ids);
    const int64_t held = cache.copy_page_rows(sequence, ids);
    EXPECT_EQ(held - shared, known);
    EXPECT_EQ(cache.length(sequence), held);
    cache.close(sequence);
    return held - shared;
  };
  EXPECT_EQ(copied({1, 2, 3, 9, 9}), 2) << "what stands behind the third token differs";
  EXPECT_EQ(copied({1, 2, 3, 4, 5, 6, 9}), 1);
  EXPECT_EQ(copied({1, 2, 3}), 1) << "the last token's logits are wanted";
  EXPECT_EQ(copied({1, 9, 3}), 0);
  EXPECT_EQ(copied({2, 2, 3}), 0);
  cache.close(first);
  EXPECT_EQ(copied({1, 2, 3, 4, 5, 6, 7, 8}), 2) << "a page that nobody uses is kept";
  EXPECT_EQ(cache.free_pages(), 16);
  const int32_t large = cache.open();
  cache.place(chain(large, 64));  // takes it
  cache.keep_rows(large, {}, 2);
  cache.close(large);
  EXPECT_EQ(copied({1, 2, 3, 4, 5, 6, 7, 8}), 0);
}

TEST(KvCache, PagesToCopyFromDoNotPileUp) {
  KvCache cache(tiny_shape(), 400, 4);
  for (int64_t i = 0; i < 100; ++i) cache.close(read(cache, {i, i, i}).first);
  const int32_t sequence = cache.open();
  int64_t known = 0;
  for (int64_t i = 0; i < 100; ++i)
    known += cache.copyable_page_rows(sequence, std::vector<int64_t>{i, i, i, 0}) > 0;
  EXPECT_EQ(known, 16);
  EXPECT_EQ(cache.free_pages(), 400);
  EXPECT_EQ(cache.tokens(), 0);
}

// Committed tokens of open sequences, shared pages once.
TEST(KvCache, TokensAreCountedOnce) {
  KvCache cache(tiny_shape(), 16, 4);
  read(cache, {1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(cache.tokens(), 7);
  read(cache, {1, 2, 3, 4, 5, 6, 9});
  EXPECT_EQ(cache.tokens(), 10);
}

}  // namespace
}  // namespace clover::model
