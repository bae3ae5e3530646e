#include "train/optimiser/adamw.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "data/files/error.h"
#include "tests/support/temporary_folder.h"

namespace clover::train {
namespace {

/// The published AdamW update for one number, in double.
struct PlainAdamW {
  double weight, first = 0, second = 0;
  void step(double gradient, int64_t count, double rate, const AdamWSettings& settings) {
    weight -= rate * settings.weight_decay * weight;
    first = settings.beta1 * first + (1 - settings.beta1) * gradient;
    second = settings.beta2 * second + (1 - settings.beta2) * gradient * gradient;
    const double unbiased_first = first / (1 - std::pow(settings.beta1, count));
    const double unbiased_second = second / (1 - std::pow(settings.beta2, count));
    weight -= rate * unbiased_first / (std::sqrt(unbiased_second) + settings.epsilon);
  }
};

double gradient_of(int64_t index, int64_t step) {
  return std::sin(static_cast<double>(3 * index + 7 * step));
}

void set_gradient(at::Tensor& parameter, int64_t step) {
  at::Tensor gradient = at::empty_like(parameter, at::TensorOptions().requires_grad(false));
  for (int64_t i = 0; i < parameter.numel(); ++i)
    gradient.data_ptr<float>()[i] = static_cast<float>(gradient_of(i, step));
  parameter.mutable_grad() = gradient;
}

TEST(AdamWTest, FollowsThePublishedUpdateAndDecaysMatricesOnly) {
  const AdamWSettings settings{.weight_decay = 0.1};
  at::Tensor matrix = at::linspace(-1, 1, 6).view({2, 3}).requires_grad_(true);
  at::Tensor vector = at::linspace(0.5, 2, 4).requires_grad_(true);
  std::vector<PlainAdamW> plain_matrix, plain_vector;
  for (int64_t i = 0; i < 6; ++i) plain_matrix.push_back({matrix.data_ptr<float>()[i]});
  for (int64_t i = 0; i < 4; ++i) plain_vector.push_back({vector.data_ptr<float>()[i]});
  AdamW optimiser({{"matrix", matrix}, {"vector", vector}}, settings);
  AdamWSettings undecayed = settings;
  undecayed.weight_decay = 0;
  for (int64_t step = 1; step <= 20; ++step) {
    set_gradient(matrix, step);
    set_gradient(vector, step);
    const double rate = 0.01 * static_cast<double>(step);
    optimiser.step(rate);
    for (int64_t i = 0; i < 6; ++i) plain_matrix[i].step(gradient_of(i, step), step, rate, settings);
    for (int64_t i = 0; i < 4; ++i) plain_vector[i].step(gradient_of(i, step), step, rate, undecayed);
  }
  for (int64_t i = 0; i < 6; ++i) EXPECT_NEAR(matrix.data_ptr<float>()[i], plain_matrix[i].weight, 1e-5);
  for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(vector.data_ptr<float>()[i], plain_vector[i].weight, 1e-5);
}

TEST(AdamWTest, AScaledRateIsThatParametersOwn) {
  const auto moved = [](const std::vector<double>& scales, double rate) {
    at::Tensor matrix = at::linspace(-1, 1, 6).view({2, 3}).requires_grad_(true),
               other = matrix.detach().clone();
    other.requires_grad_(true);
    AdamW optimiser({{"matrix", matrix}, {"other", other}}, {.weight_decay = 0.1}, scales);
    for (int64_t step = 1; step <= 3; ++step) {
      set_gradient(matrix, step);
      set_gradient(other, step);
      optimiser.step(rate);
    }
    return std::pair{matrix.detach(), other.detach()};
  };
  const auto scaled = moved({1, 0.25}, 0.01);
  EXPECT_TRUE(at::equal(scaled.first, moved({}, 0.01).first));
  EXPECT_TRUE(at::equal(scaled.second, moved({}, 0.0025).second));
}

TEST(AdamWTest, ClipsByTheNormOverAllParameters) {
  at::Tensor a = at::zeros({2}).requires_grad_(true), b = at::zeros({1}).requires_grad_(true);
  AdamW optimiser({{"a", a}, {"b", b}}, {});
  a.mutable_grad() = at::tensor({2.f, 3.f});
  b.mutable_grad() = at::tensor({6.f});
  EXPECT_NEAR(optimiser.clip_gradients(0), 7, 1e-6);  // no limit: only measured
  EXPECT_NEAR(b.grad().item<double>(), 6, 0);
  EXPECT_NEAR(optimiser.clip_gradients(3.5), 7, 1e-6);
  EXPECT_TRUE(at::allclose(a.grad(), at::tensor({1.f, 1.5f}), 1e-5));
  EXPECT_NEAR(optimiser.clip_gradients(3.5), 3.5, 1e-4);
}

TEST(AdamWTest, ContinuesBitForBitFromItsSavedState) {
  const test::TemporaryFolder folder;
  const auto file = folder / "adamw.safetensors";
  at::Tensor whole = at::linspace(-1, 1, 40).view({5, 8}).requires_grad_(true);
  AdamW uninterrupted({{"w", whole}}, {});
  for (int64_t step = 1; step <= 10; ++step) {
    set_gradient(whole, step);
    uninterrupted.step(0.01);
    if (step == 6) data::write_safetensors(file, uninterrupted.state());
  }
  at::Tensor later = at::zeros({5, 8}).requires_grad_(true);
  AdamW continued({{"w", later}}, {});
  continued.restore(data::SafetensorsReader::open(file), file.string(), 6);
  for (int64_t step = 7; step <= 10; ++step) {
    set_gradient(later, step);
    continued.step(0.01);
  }
  EXPECT_TRUE(later.equal(whole));
  at::Tensor other = at::zeros({5, 9}).requires_grad_(true);
  AdamW misfit({{"w", other}}, {});
  EXPECT_THROW(misfit.restore(data::SafetensorsReader::open(file), file.string(), 6), data::InputError);
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace clover::train
