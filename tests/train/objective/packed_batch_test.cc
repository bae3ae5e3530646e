#include "train/objective/packed_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace clover::train {
namespace {

using testing::ElementsAre;

std::vector<int64_t> list(const at::Tensor& tensor) {
  return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
}

/// A sample whose tokens are 10 times their index (plus `base`), so that every expected value is arithmetic.
struct CountedSample {
  CountedSample(int32_t base, std::vector<uint8_t> mask) : supervised(std::move(mask)) {
    for (size_t i = 0; i < supervised.size(); ++i) ids.push_back(base + 10 * static_cast<int32_t>(i));
  }
  data::TokenStore::Sample view() const { return {ids, supervised, ""}; }
  std::vector<int32_t> ids;
  std::vector<uint8_t> supervised;
};

TEST(PackedBatchTest, HeadIOfRowTIsScoredOnTokenTPlus2PlusI) {
  const CountedSample sample(0, {0, 0, 0, 1, 1, 1});  // labels: tokens 30, 40, 50
  const std::vector<data::TokenStore::Sample> samples{sample.view()};
  const PackedBatch batch = pack(samples, 2);
  // Row 0 guesses tokens 2, 3; row 1: 3, 4; row 2: 4, 5; row 3: 5 and nothing.
  EXPECT_EQ(batch.rows, 4);
  EXPECT_EQ(batch.supervised, 3);
  EXPECT_THAT(list(batch.next_ids), ElementsAre(10, 20, 30, 40));
  EXPECT_THAT(list(batch.labelled_rows), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(list(batch.heads[0].scored_rows), ElementsAre(1, 2, 3));
  EXPECT_THAT(list(batch.heads[0].labels), ElementsAre(30, 40, 50));
  EXPECT_THAT(list(batch.heads[1].parents), ElementsAre(0, 1, 2));  // row 3 has no second label
  EXPECT_THAT(list(batch.heads[1].ids), ElementsAre(20, 30, 40));   // the labels of head 0
  EXPECT_THAT(list(batch.heads[1].labels), ElementsAre(30, 40, 50));
}

TEST(PackedBatchTest, RowsBehindTheLastLabelAndSamplesWithoutLabelsAreLeftOut) {
  const CountedSample first(0, {0, 0, 1, 0, 0, 0}), silent(1000, {1, 1, 0, 0}), third(500, {0, 0, 0, 1});
  const std::vector<data::TokenStore::Sample> samples{first.view(), silent.view(), third.view()};
  EXPECT_EQ(useful_rows(samples[0], 3), 1);
  EXPECT_EQ(useful_rows(samples[1], 3), 0);  // labels at 0 and 1 have no row
  EXPECT_EQ(useful_rows(samples[2], 3), 2);
  const PackedBatch batch = pack(samples, 3);
  ASSERT_EQ(batch.segments.size(), 2u);
  EXPECT_EQ(batch.segments[0].count, 1);
  EXPECT_EQ(batch.segments[1].sequence, 2);
  EXPECT_THAT(list(batch.next_ids), ElementsAre(10, 510, 520));
  EXPECT_THAT(list(batch.labelled_rows), ElementsAre(0, 1, 2));
  EXPECT_THAT(list(batch.heads[0].labels), ElementsAre(20, 530));
  EXPECT_THAT(list(batch.heads[0].sample), ElementsAre(0, 2, 2));
  EXPECT_THAT(list(batch.heads[0].t), ElementsAre(0, 0, 1));
  EXPECT_THAT(list(batch.heads[0].scored_rows), ElementsAre(0, 2));
  EXPECT_THAT(list(batch.heads[1].labels), ElementsAre(530));  // of row 0 of the third
  EXPECT_THAT(list(batch.heads[1].parents), ElementsAre(1));
  EXPECT_EQ(batch.heads[2].labels.numel(), 0);
}

TEST(PackedBatchTest, AnswersOfSeveralTurnsLeaveTheQuestionsBetweenUnscored) {
  const CountedSample sample(0, {0, 0, 1, 0, 0, 0, 0, 1});
  const std::vector<data::TokenStore::Sample> samples{sample.view()};
  const PackedBatch batch = pack(samples, 2);
  EXPECT_THAT(list(batch.labelled_rows), ElementsAre(0, 4, 5));
  EXPECT_THAT(list(batch.heads[0].scored_rows), ElementsAre(0, 2));
  EXPECT_THAT(list(batch.heads[0].t), ElementsAre(0, 4, 5));
  EXPECT_THAT(list(batch.heads[1].parents), ElementsAre(1));  // row 4 is continued for token 7
  EXPECT_THAT(list(batch.heads[1].labels), ElementsAre(70));
}

TEST(PackedBatchTest, TheTeachersRowIsTheOneBeforeTheLabel) {
  const CountedSample first(0, {0, 0, 1, 1, 0, 0}), second(500, {0, 0, 0, 1});
  const std::vector<data::TokenStore::Sample> samples{first.view(), second.view()};
  EXPECT_EQ(useful_rows(samples[0], 2, TeacherRow::yes), 3);
  EXPECT_EQ(useful_rows(samples[1], 2, TeacherRow::yes), 3);
  const PackedBatch batch = pack(samples, 2, TeacherRow::yes);
  // Rows 0, 1, 2 are of the first, which guess tokens 1, 2, 3 in the target's LM head; 3, 4, 5 of the second.
  EXPECT_EQ(batch.rows, 6);
  EXPECT_THAT(list(batch.next_ids), ElementsAre(10, 20, 30, 510, 520, 530));
  EXPECT_THAT(list(batch.labelled_rows), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(list(batch.heads[0].labels), ElementsAre(20, 30, 530));
  EXPECT_THAT(list(batch.heads[0].teacher_rows), ElementsAre(1, 2, 5));
  EXPECT_THAT(list(batch.heads[1].labels), ElementsAre(30, 530));
  EXPECT_THAT(list(batch.heads[1].teacher_rows), ElementsAre(2, 5));
}

}  // namespace
}  // namespace clover::train
