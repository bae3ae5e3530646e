#include "train/objective/token_map.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "data/files/error.h"
#include "tests/support/temporary_folder.h"

namespace clover::train {
namespace {

class TokenMapTest : public testing::Test {
 protected:
  void SetUp() override {
    data::TokenStoreWriter writer(folder_, 0.0, 10);
    //            supervised: 7 three times, 2 and 5 twice, 9 once; 1 is frequent but never a label
    writer.add({{1, 1, 1, 1, 7, 2, 5}, {0, 0, 0, 0, 1, 1, 1}, ""});
    writer.add({{1, 7, 7, 5, 2, 9}, {0, 1, 1, 1, 1, 1}, ""});
    writer.finish({});
  }
  const test::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_ / "store";
};

TEST_F(TokenMapTest, KeepsTheMostFrequentLabelsInAscendingOrder) {
  const auto store = data::TokenStore::open(folder_);
  EXPECT_TRUE(frequent_tokens(store, 1, 10).equal(at::tensor({7}, at::kLong)));
  EXPECT_TRUE(
      frequent_tokens(store, 2, 10).equal(at::tensor({2, 7}, at::kLong)));  // tie of 2 and 5: the lower
  EXPECT_TRUE(frequent_tokens(store, 4, 10).equal(at::tensor({2, 5, 7, 9}, at::kLong)));
  EXPECT_TRUE(
      frequent_tokens(store, 6, 10).equal(at::tensor({0, 1, 2, 5, 7, 9}, at::kLong)));  // never seen: lowest
}

TEST_F(TokenMapTest, ZeroOrTooManyMeansTheWholeVocabulary) {
  const auto store = data::TokenStore::open(folder_);
  EXPECT_FALSE(frequent_tokens(store, 0, 10).defined());
  EXPECT_FALSE(frequent_tokens(store, 10, 10).defined());
  EXPECT_EQ(LabelMap({}, 10).index_of(9), 9);
}

TEST_F(TokenMapTest, AStoreOfALargerVocabularyIsRefused) {
  EXPECT_THROW(frequent_tokens(data::TokenStore::open(folder_), 4, 9), data::InputError);
}

TEST_F(TokenMapTest, LabelsMapToTheirIndexOrToNothing) {
  const LabelMap map(at::tensor({2, 5, 7}, at::kLong), 10);
  EXPECT_EQ(map.index_of(2), 0);
  EXPECT_EQ(map.index_of(7), 2);
  EXPECT_EQ(map.index_of(6), -1);
}

}  // namespace
}  // namespace clover::train
