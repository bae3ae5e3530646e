#include "model/kv_cache.h"

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
  cache.keep(sequence, std::vector<int32_t>{0, 1, 2}, 2);
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
  cache.keep(sequence, std::vector<int32_t>{0, 2, 5, 6}, 2);
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

}  // namespace
}  // namespace clover::model
