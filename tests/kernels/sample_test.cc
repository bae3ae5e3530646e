#include "kernels/sample.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/kernels/paths.h"

namespace clover::kernels {
namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();

/// Kept tokens, most probable first, and the cumulative mass of each: the contract's words as a plain loop in
/// double.
struct Kept {
  std::vector<int64_t> tokens;
  std::vector<double> cumulative;
};

Kept kept_by(const std::vector<float>& logits, const SamplingRule& rule) {
  Kept kept;
  kept.tokens.resize(logits.size());
  std::iota(kept.tokens.begin(), kept.tokens.end(), 0);
  std::stable_sort(kept.tokens.begin(), kept.tokens.end(),
                   [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  if (rule.top_k > 0) kept.tokens.resize(std::min<size_t>(kept.tokens.size(), rule.top_k));
  double total = 0;
  for (int64_t token : kept.tokens) {
    total += std::exp((logits[token] - static_cast<double>(logits[kept.tokens[0]])) / rule.temperature);
    kept.cumulative.push_back(total);
  }
  size_t count = 0;
  while (count < kept.tokens.size() && (count == 0 || kept.cumulative[count - 1] < rule.top_p * total))
    ++count;
  if (rule.top_p < 1) {
    kept.tokens.resize(count);
    kept.cumulative.resize(count);
  }
  return kept;
}

std::vector<float> random_logits(int64_t count, double spread) {
  const at::Tensor values = at::randn({count}) * spread;
  return {values.const_data_ptr<float>(), values.const_data_ptr<float>() + count};
}

// Known answers of Random123 (Philox4x32-10); the first two of the four words make the number.
TEST(Philox, GivesThePublishedWords) {
  const auto number = [](uint64_t high, uint64_t low) {
    return static_cast<double>((high << 32 | low) >> 11) * 0x1p-53;
  };
  EXPECT_EQ(philox_uniform(0, 0, 0, 0), number(0x6627e8d5, 0xe169c58d));
  EXPECT_EQ(philox_uniform(~0ull, ~0ull, 0xffffffff, 0xffffffff), number(0x408f276d, 0x41c83b0e));
  EXPECT_EQ(philox_uniform(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x13198a2e, 0x03707344),
            number(0xd16cfe09, 0x94fdcceb));
}

TEST(Philox, IsUniformAndEveryArgumentCounts) {
  double sum = 0;
  int low = 0;
  for (uint64_t position = 0; position < 20000; ++position) {
    const double u = philox_uniform(7, 11, 2, position);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    low += u < 0.1;
  }
  EXPECT_NEAR(sum / 20000, 0.5, 0.01);
  EXPECT_NEAR(low, 2000, 150);
  const double base = philox_uniform(1, 2, 3, 4);
  EXPECT_NE(base, philox_uniform(2, 2, 3, 4));
  EXPECT_NE(base, philox_uniform(1 + (1ull << 32), 2, 3, 4));
  EXPECT_NE(base, philox_uniform(1, 3, 3, 4));
  EXPECT_NE(base, philox_uniform(1, 2 + (1ull << 32), 3, 4));
  EXPECT_NE(base, philox_uniform(1, 2, 4, 4));
  EXPECT_NE(base, philox_uniform(1, 2, 3, 5));
  EXPECT_NE(error_of([] { philox_uniform(0, 0, 1ull << 32, 0); }).find("below 2^32"), std::string::npos);
}

TEST(Sample, TemperatureZeroIsArgMax) {
  const std::vector<float> logits = {1, 5, std::numeric_limits<float>::quiet_NaN(), 5, 2};
  EXPECT_EQ(sample(logits.data(), 5, {}, 0.9), 1);
}

TEST(Sample, FollowsTheContractForEveryRule) {
  at::manual_seed(1);
  on_every_path([] {
    for (double spread : {0.0, 0.5, 3.0, 12.0}) {
      for (int64_t count : {1, 6, 200, 3000}) {
        const std::vector<float> logits = random_logits(count, spread);
        for (double temperature : {0.3, 1.0, 2.5}) {
          for (double top_p : {1.0, 0.9, 0.3, 0.0}) {
            for (int64_t top_k : {0, 1, 5, 1000}) {
              const SamplingRule rule{temperature, top_p, top_k};
              const Kept kept = kept_by(logits, rule);
              for (int i = 0; i < 20; ++i) {
                const double u = (i + 0.37) / 20;
                const double target = u * kept.cumulative.back(), slack = 1e-5 * kept.cumulative.back();
                const int64_t token = sample(logits.data(), count, rule, u);
                const auto at = std::find(kept.tokens.begin(), kept.tokens.end(), token);
                ASSERT_NE(at, kept.tokens.end()) << "not kept";
                const size_t rank = at - kept.tokens.begin();
                ASSERT_GT(kept.cumulative[rank], target - slack);
                ASSERT_LE(rank == 0 ? 0 : kept.cumulative[rank - 1], target + slack);
              }
            }
          }
        }
      }
    }
  });
}

TEST(Sample, TiesGoToTheLowestId) {
  const std::vector<float> logits = {0, 2, 2, 2};
  EXPECT_EQ(sample(logits.data(), 4, {1, 1, 2}, 0.0), 1);
  EXPECT_EQ(sample(logits.data(), 4, {1, 1, 2}, 0.49), 1);
  EXPECT_EQ(sample(logits.data(), 4, {1, 1, 2}, 0.5), 2);
  EXPECT_EQ(sample(logits.data(), 4, {1, 1, 2}, 0.999999), 2);
}

TEST(Sample, TheEdgesOfUniformStayInside) {
  const std::vector<float> logits = random_logits(1000, 5);
  const double most = std::nextafter(1.0, 0.0);
  for (const SamplingRule& rule :
       {SamplingRule{1, 1, 0}, {1, 0.5, 0}, {1, 1, 7}, {0.01, 1, 0}, {1e-30, 1, 0}}) {
    const Kept kept = kept_by(logits, rule);
    EXPECT_EQ(sample(logits.data(), 1000, rule, 0), kept.tokens[0]);
    const int64_t last = sample(logits.data(), 1000, rule, most);
    EXPECT_NE(std::find(kept.tokens.begin(), kept.tokens.end(), last), kept.tokens.end());
  }
}

TEST(Sample, MaskedTokensAreNeverChosen) {
  std::vector<float> logits(500, -infinite);
  logits[77] = 1;
  logits[400] = 1;
  logits[10] = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(sample(logits.data(), 500, {1, 1, 0}, i / 50.0), i < 25 ? 77 : 400);
    EXPECT_EQ(sample(logits.data(), 500, {1, 1, 10}, i / 50.0), i < 25 ? 77 : 400);
  }
  const std::vector<float> nothing(9, -infinite);
  EXPECT_EQ(sample(nothing.data(), 9, {1, 1, 0}, 0.7), 0);
  logits[3] = infinite;
  EXPECT_EQ(sample(logits.data(), 500, {1, 1, 0}, 0.7), 3);
}

// Chi-squared of 40000 draws over 6 tokens: 5 degrees of freedom, 0.1 % critical value 20.5.
TEST(Sample, DrawsTheDistribution) {
  const std::vector<float> logits = {0, 1, -1, 0.5, 2, -2};
  const double temperature = 1.3;
  const Kept kept = kept_by(logits, {temperature, 1, 0});
  std::vector<int> drawn(6);
  for (uint64_t position = 0; position < 40000; ++position) {
    ++drawn[sample(logits.data(), 6, {temperature, 1, 0}, philox_uniform(5, 1, 0, position))];
  }
  double statistic = 0;
  for (size_t i = 0; i < 6; ++i) {
    const double mass = kept.cumulative[i] - (i == 0 ? 0 : kept.cumulative[i - 1]);
    const double expected = 40000 * mass / kept.cumulative.back();
    statistic += std::pow(drawn[kept.tokens[i]] - expected, 2) / expected;
  }
  EXPECT_LT(statistic, 20.5);
}

TEST(Sample, SaysWhatIsWrong) {
  const float logit = 0;
  EXPECT_NE(error_of([&] { sample(&logit, 0, {}, 0); }).find("0 tokens"), std::string::npos);
  EXPECT_NE(error_of([&] { sample(&logit, 1, {}, 1.0); }).find("uniform is 1"), std::string::npos);
  EXPECT_NE(error_of([&] {
              sample(&logit, 1, {-1, 1, 0}, 0.5);
            }).find("temperature is -1"),
            std::string::npos);
}

}  // namespace
}  // namespace clover::kernels
