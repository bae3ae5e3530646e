#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/kernels/here.h"
#include "tests/support/stand_in_device.h"

// A kernel may begin while the last one still writes what it will read.
namespace clover::kernels {
namespace {

/// `op` of a tensor on the emulated GPU, which holds NaN until each block has waited.
template <class Op>
void expect_to_wait(const char* name, const at::Tensor& x, const Op& op) {
  at::Tensor placed = here::place(x);
  const at::Tensor expected = op(placed).cpu();
  test::last_kernel_writes(placed.mutable_data_ptr(), placed.nbytes());
  const at::Tensor found = op(placed).cpu();
  test::last_kernel_writes(nullptr, 0);
  EXPECT_TRUE(at::equal(found, expected)) << name;
}

TEST(KernelOverlap, WhatTheLastKernelWritesIsReadBehindIt) {
  at::manual_seed(14);
  const PackedWeight weight = here::place(PackedWeight::pack({at::randn({150, 104}).to(at::kBFloat16)}));
  const at::Tensor norm = here::place(at::rand({104}));
  const auto product = [&](const LinearInput& input) {
    at::Tensor y = here::place(at::zeros({input.x.size(0), 150}));
    linear(input, weight, {}, y);
    return y;
  };
  for (const int64_t rows : {1, 9, 17, 200})
    expect_to_wait("linear", at::randn({rows, 104}).to(at::kBFloat16), product);
  for (const int64_t rows : {1, 8, 9})
    expect_to_wait("linear of normed rows", at::randn({rows, 104}), [&](const at::Tensor& x) {
      return product({x, norm, 1e-5});
    });
  expect_to_wait("rms_norm", at::randn({3, 104}), [&](const at::Tensor& x) {
    at::Tensor out = here::place(at::zeros({3, 104}));
    rms_norm(x, norm, 1e-5, out);
    return out;
  });
  const at::Tensor logits = at::randn({3, 5000});
  expect_to_wait("arg_max", logits, [](const at::Tensor& x) { return arg_max(x); });
  expect_to_wait("log_sum_exp", logits, [](const at::Tensor& x) { return log_sum_exp(x); });
  expect_to_wait("top_k", logits, [](const at::Tensor& x) { return std::get<1>(top_k(x, 4)); });
  expect_to_wait("add_silu_", at::randn({3, 104}), [](const at::Tensor& a) {
    at::Tensor z = here::place(at::zeros({3, 104}));
    add_silu_(z, a);
    return z;
  });
}

TEST(KernelOverlap, AttentionReadsQueriesAndKeysBehindIt) {
  at::manual_seed(15);
  constexpr int64_t heads = 2, size = 64, page = 16, pages = 20;
  const auto numbers = [](std::vector<int32_t> all) { return here::place(at::tensor(all, at::kInt)); };
  std::vector<int32_t> table(pages);
  for (int32_t i = 0; i < pages; ++i) table[i] = i;
  const AttentionRows rows{numbers({0}), numbers({300}), numbers({0, 0}), numbers({}),
                           numbers(table).view({1, pages})};
  const at::Tensor q = at::randn({1, heads, size}),
                   k = at::randn({pages, heads, page, size}).to(at::kBFloat16), v = at::randn_like(k);
  const auto attend = [&](const at::Tensor& of_q, const at::Tensor& of_k, const at::Tensor& of_v) {
    at::Tensor out = here::place(at::zeros({1, heads * size}));
    tree_attention(of_q, of_k, of_v, rows, 0.125, out);
    return out;
  };
  const at::Tensor placed_q = here::place(q), placed_k = here::place(k), placed_v = here::place(v);
  expect_to_wait("queries", q, [&](const at::Tensor& x) { return attend(x, placed_k, placed_v); });
  expect_to_wait("keys", k, [&](const at::Tensor& x) { return attend(placed_q, x, placed_v); });
  expect_to_wait("values", v, [&](const at::Tensor& x) { return attend(placed_q, placed_k, x); });
}

}  // namespace
}  // namespace clover::kernels
