#include "kernels/vocabulary/sample.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/rows/activation.h"
#include "tests/kernels/here.h"

namespace clover::kernels {
namespace {

std::vector<int64_t> most_probable_first(const std::vector<float>& logits) {
  std::vector<int64_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  std::stable_sort(tokens.begin(), tokens.end(), [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  return tokens;
}

/// Kept tokens, most probable first, and the cumulative mass of each: the contract's words as a plain loop in
/// double.
struct Kept {
  std::vector<int64_t> tokens;
  std::vector<double> cumulative;
};

Kept kept_by(const std::vector<float>& logits, const SamplingRule& rule) {
  Kept kept{most_probable_first(logits), {}};
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
  const auto too_unlikely = [&](int64_t token) {
    return std::exp((logits[token] - static_cast<double>(logits[kept.tokens[0]])) / rule.temperature) <
           rule.min_p;
  };
  while (too_unlikely(kept.tokens.back())) {
    kept.tokens.pop_back();
    kept.cumulative.pop_back();
  }
  return kept;
}

std::vector<float> random_logits(int64_t count, double spread) {
  const at::Tensor values = at::randn({count}) * spread;
  return {values.const_data_ptr<float>(), values.const_data_ptr<float>() + count};
}

/// A token for each of `uniforms`.
std::vector<int64_t> drawn(const std::vector<float>& logits, const SamplingRule& rule,
                           const std::vector<double>& uniforms) {
  const at::Tensor rules = at::empty({std::ssize(uniforms), 5}, at::kDouble);
  for (int64_t i = 0; i < std::ssize(uniforms); ++i) {
    const double row[] = {rule.temperature, rule.top_p, static_cast<double>(rule.top_k), uniforms[i],
                          -std::log(rule.min_p)};
    std::copy_n(row, 5, rules.mutable_data_ptr<double>() + 5 * i);
  }
  const at::Tensor rows = at::tensor(logits).repeat({std::ssize(uniforms), 1});
  const at::Tensor tokens = here::sample(rows, rules);
  return {tokens.const_data_ptr<int64_t>(), tokens.const_data_ptr<int64_t>() + tokens.numel()};
}

std::vector<double> evenly(int64_t count, double offset) {
  std::vector<double> uniforms;
  for (int64_t i = 0; i < count; ++i)
    uniforms.push_back((static_cast<double>(i) + offset) / static_cast<double>(count));
  return uniforms;
}

/// Every token drawn is one that the rule keeps, and where its share of the mass lies.
void expect_contract(const std::vector<float>& logits, const SamplingRule& rule, int64_t draws) {
  SCOPED_TRACE(testing::Message() << logits.size() << " tokens, temperature " << rule.temperature
                                  << ", top_p " << rule.top_p << ", top_k " << rule.top_k << ", min_p "
                                  << rule.min_p);
  const Kept kept = kept_by(logits, rule);
  const std::vector<double> uniforms = evenly(draws, 0.37);
  const std::vector<int64_t> tokens = drawn(logits, rule, uniforms);
  const double slack = 1e-5 * kept.cumulative.back();
  for (int64_t i = 0; i < draws; ++i) {
    const double target = uniforms[i] * kept.cumulative.back();
    const auto at = std::find(kept.tokens.begin(), kept.tokens.end(), tokens[i]);
    ASSERT_NE(at, kept.tokens.end()) << "not kept";
    const size_t rank = at - kept.tokens.begin();
    ASSERT_GT(kept.cumulative[rank], target - slack);
    ASSERT_LE(rank == 0 ? 0 : kept.cumulative[rank - 1], target + slack);
  }
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
  on_every_path([&] { EXPECT_EQ(drawn(logits, {}, {0.9})[0], 1); });
}

TEST(Sample, FollowsTheContractForEveryRule) {
  at::manual_seed(1);
  const bool few = here::emulated();
  const auto counts = few ? std::vector<int64_t>{6, 3000} : std::vector<int64_t>{1, 6, 200, 3000};
  on_every_path([&] {
    for (const double spread : {0.0, 0.5, 3.0, 12.0}) {
      for (const int64_t count : counts) {
        const std::vector<float> logits = random_logits(count, spread);
        for (const double temperature : {0.3, 1.0, 2.5}) {
          for (const double top_p : {1.0, 0.9, 0.3, 0.0}) {
            for (const int64_t top_k : {0, 1, 5, 1000})
              expect_contract(logits, {temperature, top_p, top_k}, few ? 3 : 20);
          }
        }
      }
    }
  });
}

TEST(Sample, LeavesOutWhatIsTooUnlikelyBesideTheMostProbable) {
  at::manual_seed(7);
  const bool few = here::emulated();
  on_every_path([&] {
    for (const double spread : {0.5, 3.0, 12.0}) {
      const std::vector<float> logits = random_logits(few ? 900 : 3000, spread);
      for (const double temperature : {0.6, 2.0}) {
        for (const double min_p : {1e-6, 0.003, 0.1, 0.6, 1.0}) {
          for (const SamplingRule& rule : {SamplingRule{temperature, 1, 0, min_p},
                                           {temperature, 0.7, 0, min_p},
                                           {temperature, 1, 5, min_p},
                                           {temperature, 0.9, 300, min_p}})
            expect_contract(logits, rule, few ? 3 : 20);
        }
      }
    }
  });
}

// More tokens than can be told apart at once: all alike, or one of many logits that hardly differ.
TEST(Sample, FindsItsTokenAmongThousandsThatAreAlike) {
  at::manual_seed(2);
  std::vector<float> alike(40003, -3.5f), close = random_logits(5000, 1e-4);
  for (size_t i = 0; i < close.size(); ++i) close[i] = i % 7 == 0 ? close[0] : close[i];
  on_every_path([&] {
    for (const std::vector<float>& logits : {alike, close}) {
      for (const SamplingRule& rule : {SamplingRule{1, 1, 0}, {0.7, 0.5, 0}, {1, 0.9, 2500}})
        expect_contract(logits, rule, 7);
    }
    // Masked tokens fill up what the top-k asks for.
    std::vector<float> masked(5000, -infinite);
    masked[4000] = 2;
    masked[3] = 1;
    EXPECT_EQ(drawn(masked, {1, 1, 3000}, {0.1, 0.9}), (std::vector<int64_t>{4000, 3}));
  });
}

TEST(Sample, RowsHaveRulesOfTheirOwn) {
  at::manual_seed(3);
  const at::Tensor logits = at::randn({4, 700}) * 3;
  const SamplingRule rules[] = {{0, 1, 0}, {1, 0.8, 0}, {2, 1, 20}, {1.5, 0.9, 50, 0.1}};
  at::Tensor packed = at::empty({4, 5}, at::kDouble);
  std::vector<int64_t> alone;
  on_every_path([&] {
    alone.clear();
    for (int64_t row = 0; row < 4; ++row) {
      const double uniform = 0.2 + 0.17 * static_cast<double>(row);
      const auto& [temperature, top_p, top_k, min_p] = rules[row];
      const double values[] = {temperature, top_p, static_cast<double>(top_k), uniform, -std::log(min_p)};
      std::copy_n(values, 5, packed[row].mutable_data_ptr<double>());
      const float* of_row = logits[row].const_data_ptr<float>();
      alone.push_back(drawn({of_row, of_row + 700}, rules[row], {uniform})[0]);
    }
    const at::Tensor together = here::sample(logits, packed);
    EXPECT_EQ(alone, std::vector<int64_t>(together.const_data_ptr<int64_t>(),
                                          together.const_data_ptr<int64_t>() + 4));
  });
}

TEST(Sample, TiesGoToTheLowestId) {
  on_every_path([] {
    EXPECT_EQ(drawn({0, 2, 2, 2}, {1, 1, 2}, {0.0, 0.49, 0.5, 0.999999}), (std::vector<int64_t>{1, 1, 2, 2}));
    EXPECT_EQ(drawn({0, -0.0f, 0, -1}, {1, 1, 2}, {0.1, 0.9}), (std::vector<int64_t>{0, 1}));
  });
}

TEST(Sample, TheEdgesOfUniformStayInside) {
  const std::vector<float> logits = random_logits(1000, 5);
  const double most = std::nextafter(1.0, 0.0);
  on_every_path([&] {
    for (const SamplingRule& rule : {SamplingRule{1, 1, 0},
                                     {1, 0.5, 0},
                                     {1, std::nextafter(1.0, 0.0), 0},
                                     {1, 1, 7},
                                     {0.01, 1, 0},
                                     {1e-30, 1, 0},
                                     {1e-60, 1, 0}}) {
      const Kept kept = kept_by(logits, rule);
      const std::vector<int64_t> edges = drawn(logits, rule, {0, most});
      EXPECT_EQ(edges[0], kept.tokens[0]);
      EXPECT_NE(std::find(kept.tokens.begin(), kept.tokens.end(), edges[1]), kept.tokens.end());
    }
  });
}

TEST(Sample, MaskedTokensAreNeverChosen) {
  std::vector<float> logits(500, -infinite);
  logits[77] = 1;
  logits[400] = 1;
  logits[10] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> nothing(9, -infinite);
  std::vector<float> endless = logits;
  endless[3] = infinite;
  on_every_path([&] {
    for (const int64_t top_k : {0, 10}) {
      const std::vector<int64_t> tokens = drawn(logits, {1, 1, top_k}, evenly(20, 0));
      for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i], i < 10 ? 77 : 400);
    }
    EXPECT_EQ(drawn(nothing, {0, 1, 0}, {0.7})[0], -1);
    EXPECT_EQ(drawn(nothing, {1, 1, 0}, {0.7})[0], -1);
    EXPECT_EQ(drawn(nothing, {1, 0.5, 3}, {0.7})[0], -1);
    for (const double temperature : {1.0, 1e38, 1e39}) {
      for (const SamplingRule& rule :
           {SamplingRule{temperature, 1, 0}, {temperature, 0.9, 0}, {temperature, 1, 2}})
        EXPECT_EQ(drawn(endless, rule, {0.7})[0], 3);
    }
  });
}

/// The token at which the masses of all, from the most probable down, sum up to more than uniform's share:
/// whole multiples of 2^-40, one after the other.
int64_t drawn_exactly(const std::vector<float>& logits, float temperature, double uniform) {
  const std::vector<int64_t> order = most_probable_first(logits);
  const float largest = logits[order[0]];
  const auto mass = [&](int64_t token) {
    const float weight = exp_f32(-((largest - logits[token]) / temperature));
    return static_cast<uint64_t>(std::ldexp(static_cast<double>(weight), 40));
  };
  uint64_t total = 0, sum = 0;
  for (const int64_t token : order) total += mass(token);
  const auto share = static_cast<unsigned __int128>(std::ldexp(uniform, 53));
  const auto wanted = static_cast<uint64_t>(share * total >> 53) + 1;
  for (const int64_t token : order) {
    if ((sum += mass(token)) >= wanted) return token;
  }
  return -1;
}

// Few tokens are near, most have hardly any mass, and `uniform` finds the last bit of it.
TEST(Sample, MassesAreExactOnACpu) {
  if (!here::place(at::empty({1})).is_cpu()) return;
  at::manual_seed(5);
  on_every_path([&] {
    for (const double spread : {1.0, 4.0, 12.0}) {
      const std::vector<float> logits = random_logits(20011, spread);
      for (const double temperature : {0.5, 1.0}) {
        for (const double uniform : {0.0, 0.4, 0.9, 0.99, 0.9999, 0.999999, 1 - 1e-9, 1 - 1e-11})
          EXPECT_EQ(drawn(logits, {temperature, 1, 0}, {uniform})[0],
                    drawn_exactly(logits, static_cast<float>(temperature), uniform))
              << spread << " " << temperature << " " << uniform;
      }
    }
  });
}

TEST(Sample, OneRowAndManyAreTheSameFunction) {
  at::manual_seed(4);
  const std::vector<float> logits = random_logits(300, 3);
  const SamplingRule rule{0.9, 0.95, 40};
  if (here::place(at::empty({1})).is_cpu()) {
    const std::vector<double> uniforms = evenly(50, 0.5);
    const std::vector<int64_t> together = drawn(logits, rule, uniforms);
    for (size_t i = 0; i < uniforms.size(); ++i)
      EXPECT_EQ(together[i], sample(logits.data(), 300, rule, uniforms[i]));
  }
}

// Chi-squared of many draws over 6 tokens: 5 degrees of freedom, 0.1 % critical value 20.5.
TEST(Sample, DrawsTheDistribution) {
  const std::vector<float> logits = {0, 1, -1, 0.5, 2, -2};
  const double temperature = 1.3;
  const Kept kept = kept_by(logits, {temperature, 1, 0});
  const int64_t draws = here::emulated() ? 4000 : 40000;
  std::vector<double> uniforms;
  for (int64_t position = 0; position < draws; ++position)
    uniforms.push_back(philox_uniform(5, 1, 0, static_cast<uint64_t>(position)));
  std::vector<int> counted(6);
  for (const int64_t token : drawn(logits, {temperature, 1, 0}, uniforms)) ++counted[token];
  double statistic = 0;
  for (size_t i = 0; i < 6; ++i) {
    const double mass = kept.cumulative[i] - (i == 0 ? 0 : kept.cumulative[i - 1]);
    const double expected = static_cast<double>(draws) * mass / kept.cumulative.back();
    statistic += std::pow(counted[kept.tokens[i]] - expected, 2) / expected;
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
  EXPECT_NE(error_of([&] {
              here::sample(at::empty({2, 5}), at::empty({2, 3}, at::kDouble));
            }).find("rules"),
            std::string::npos);
}

}  // namespace
}  // namespace clover::kernels
