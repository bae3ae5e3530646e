#include "train/ranks/communicator.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "train/ranks/tree_sum.h"

namespace clover::train {
namespace {

/// Runs `body` as each of `count` ranks, in threads.
void as_ranks(int64_t count, const std::function<void(Communicator&)>& body) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator ranks({rank, count}, store, std::chrono::seconds(20));
      body(ranks);
      ranks.shut_down();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

at::Tensor drawn(int64_t leaf, int64_t size) {
  return at::randn({size}, at::make_generator<at::CPUGeneratorImpl>(leaf + 1)) * std::pow(10.0, leaf % 5);
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && at::equal(a, b);
}

TEST(TreeSum, AddsHalvesAndLeavesOutWhatIsNothing) {
  std::vector<int64_t> order;
  const auto leaf = [&](int64_t i) {
    order.push_back(i);
    return i == 2 ? at::Tensor() : at::full({1}, static_cast<float>(i));
  };
  EXPECT_EQ(tree_sum(0, 5, leaf).item<float>(), 0 + 1 + 3 + 4);
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_FALSE(tree_sum(3, 3, leaf).defined());
}

TEST(TreeSum, SharesAreSubtrees) {
  EXPECT_EQ(rank_share(5, 0, 1), std::make_pair(int64_t{0}, int64_t{5}));
  EXPECT_EQ(rank_share(5, 0, 2), std::make_pair(int64_t{0}, int64_t{2}));
  EXPECT_EQ(rank_share(5, 1, 2), std::make_pair(int64_t{2}, int64_t{5}));
  EXPECT_EQ(rank_share(5, 3, 4), std::make_pair(int64_t{3}, int64_t{5}));
  EXPECT_EQ(rank_share(1, 0, 2), std::make_pair(int64_t{0}, int64_t{0}));
  EXPECT_EQ(rank_share(1, 1, 2), std::make_pair(int64_t{0}, int64_t{1}));
}

TEST(Communicator, SumsAreTheSameBitsForAnyNumberOfRanks) {
  for (const int64_t leaves : {1, 3, 8, 13}) {
    constexpr int64_t size = 1003;
    const auto leaf = [&](int64_t i) { return drawn(i, size); };
    const at::Tensor expected = tree_sum(0, leaves, leaf);
    for (const int64_t count : {2, 4, 8}) {
      as_ranks(count, [&](Communicator& ranks) {
        std::vector<bool> holds;
        for (int64_t rank = 0; rank < count; ++rank) {
          const auto [begin, end] = rank_share(leaves, rank, count);
          holds.push_back(begin < end);
        }
        const auto [begin, end] = rank_share(leaves, ranks.rank().number, count);
        for (int again = 0; again < 2; ++again) {
          const at::Tensor sum = ranks.all_reduce(tree_sum(begin, end, leaf), holds, at::kFloat, size);
          EXPECT_TRUE(same(sum, expected)) << leaves << " leaves, " << count << " ranks";
        }
      });
    }
  }
}

// Larger than one value of the store, and than one all_to_all.
TEST(Communicator, LargeSumsTravelInPieces) {
  const int64_t size = (int64_t{1} << 24) + 77;
  const at::Tensor one = at::arange(size, at::kFloat), expected = one * 3;
  as_ranks(2, [&](Communicator& ranks) {
    const double share = ranks.is_rank_zero() ? 1 : 2;
    EXPECT_TRUE(same(ranks.all_reduce(one * share, {true, true}, at::kFloat, size), expected));
  });
}

TEST(Communicator, GathersInTheOrderOfRanks) {
  as_ranks(4, [](Communicator& ranks) {
    for (int round = 0; round < 5; ++round) {
      const double own = static_cast<double>(ranks.rank().number) + 10.0 * round;
      const auto all = ranks.all_gather({own, own / 3});
      ASSERT_EQ(all.size(), 4u);
      for (int64_t rank = 0; rank < 4; ++rank) {
        const double expected = static_cast<double>(rank) + 10.0 * round;
        EXPECT_THAT(all[rank], testing::ElementsAre(expected, expected / 3));
      }
    }
  });
}

TEST(Communicator, SaysWhoHasNotBeenHeardOf) {
  Communicator ranks({0, 2}, c10::make_intrusive<c10d::HashStore>(), std::chrono::milliseconds(50));
  try {
    ranks.all_gather({1});
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 1 of 2 has not been heard of for"));
  }
}

/// Collectives whose other process has died: no exchange ever finishes.
class DeadCollectives : public GpuCollectives {
 public:
  explicit DeadCollectives(bool& there) : there_(there) { there_ = true; }
  ~DeadCollectives() override { there_ = false; }
  void all_to_all(const at::Tensor&, at::Tensor&) override {}
  bool finished() override { return false; }

 private:
  bool& there_;
};

std::string why_it_ends(Communicator& ranks) {
  try {
    ranks.all_reduce(at::ones({3}), {true, true}, at::kFloat, 3);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(Communicator, ExchangesOfGpusEndWhenAnotherRankIsGone) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  bool there = false;
  Communicator impatient({0, 2}, store, std::chrono::milliseconds(50),
                         std::make_unique<DeadCollectives>(there));
  EXPECT_THAT(why_it_ends(impatient), testing::HasSubstr("has not been heard of for"));
  EXPECT_FALSE(there) << "links that are kept keep the GPU busy";

  Communicator first({0, 2}, store, std::chrono::minutes(5), std::make_unique<DeadCollectives>(there)),
      second({1, 2}, store, std::chrono::minutes(5));
  second.abort("the GPU is full");
  EXPECT_EQ(why_it_ends(first), "rank 1 of 2 ended: the GPU is full");
  EXPECT_FALSE(there);
}

TEST(Communicator, OneAloneIsAllThereAre) {
  Communicator ranks;
  EXPECT_TRUE(ranks.is_rank_zero() && ranks.is_only_rank());
  const at::Tensor own = at::ones({3});
  EXPECT_TRUE(ranks.all_reduce(own, {true}, at::kFloat, 3).is_same(own));
  EXPECT_THAT(ranks.all_gather({5}), testing::ElementsAre(testing::ElementsAre(5.0)));
  ranks.shut_down();
}

}  // namespace
}  // namespace clover::train
