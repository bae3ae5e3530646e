#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "kernels/gpu/gpu.h"
#include "kernels/linear/call_of.h"
#include "kernels/linear/linear_launch.h"
#include "tests/kernels/here.h"

// Every plan that a GPU may make a product by yields the same bits, whatever it would choose.
namespace clover::kernels::cuda {
namespace {

std::vector<LinearPlan> every_plan(const LinearCall& call) {
  std::vector<LinearPlan> plans;
  const GpuLimits room = gpu_limits();
  for (const int panels : room.large_shared_memory ? std::vector<int>{1, 2} : std::vector<int>{}) {
    for (const int tiles : {2, 4, 6, 8}) {
      FlatPlan plan{panels, tiles};
      const int64_t blocks = plan.panel_blocks(call);
      for (const int64_t split : std::set<int64_t>{0, 1, blocks / 2, blocks}) {
        if (plan.row_blocks(call) * split > max_split_tiles) continue;
        plan.split_blocks = split;
        plans.push_back(LinearPlan::by(plan));
      }
    }
  }
  if (!room.clusters || !in_aligned_pairs(call)) return plans;
  for (const int rows : ClusterPlan::row_tile_sizes) {
    ClusterPlan plan = ClusterPlan::of(rows);
    plans.push_back(LinearPlan::by(plan));
    plan.stages = 3;  // the fewest whose memory holds the sums
    plans.push_back(LinearPlan::by(plan));
  }
  return plans;
}

std::string name_of(const LinearPlan& plan) {
  if (plan.kernel == LinearPlan::Kernel::clusters)
    return std::to_string(plan.clusters.rows_per_tile) + " rows by clusters, " +
           std::to_string(plan.clusters.stages) + " stages";
  return std::to_string(plan.flat.panels_per_warp) + " panels, " + std::to_string(plan.flat.tiles_per_warp) +
         " tiles a warp, " + std::to_string(plan.flat.split_blocks) + " blocks split";
}

/// `product` by each plan: of a fresh copy of its outputs, which it leaves in one tensor of the CPU.
template <class Product>
void expect_equal_plans(const at::Tensor& x, const Product& product) {
  const auto run = [&](const LinearPlan& plan) {
    return product([&](const LinearCall& call) {
      const auto floats = at::TensorOptions(at::kFloat).device(x.device());
      at::Tensor workspace =
          at::full({linear_workspace(call, plan) + 1}, std::numeric_limits<float>::quiet_NaN(), floats);
      at::Tensor arrived = at::zeros({max_split_tiles}, floats.dtype(at::kInt));
      launch_linear(call, plan, workspace.mutable_data_ptr<float>(),
                    reinterpret_cast<unsigned*>(arrived.mutable_data_ptr<int32_t>()), current_stream(x));
      EXPECT_EQ(arrived.cpu().abs().sum().item<int64_t>(), 0) << "counters are left";
    });
  };
  const at::Tensor expected = run({});
  std::vector<LinearPlan> plans;
  product([&](const LinearCall& call) { plans = every_plan(call); });
  for (const LinearPlan& plan : plans) EXPECT_TRUE(same_bits(run(plan), expected)) << name_of(plan);
}

// A GPU that has them and finds other bits would go without, as it should; nobody has seen such a one.
TEST(LinearPlans, WarpgroupProductsAreUsedWhereTheGpuHasThem) {
  EXPECT_EQ(uses_warpgroup_products(here::place(at::zeros({1})).device()), gpu_limits().clusters);
}

struct PlanShape {
  int64_t rows, outputs, inputs;
  at::ScalarType type;
  bool accumulate;
  int64_t offset = 0;  // of y in its memory
};

void expect_equal_sums(std::initializer_list<PlanShape> shapes) {
  at::manual_seed(6);
  for (const auto& [rows, outputs, inputs, type, accumulate, offset] : shapes) {
    SCOPED_TRACE(testing::Message() << rows << " x " << outputs << " x " << inputs);
    const at::Tensor x = here::place(at::randn({rows, inputs}).to(type)), start = at::randn({rows, outputs}),
                     bias = accumulate ? at::Tensor() : here::place(at::randn({outputs}));
    const PackedWeight weight = here::place(PackedWeight::pack({at::randn({outputs, inputs}).to(type)}));
    expect_equal_plans(x, [&, accumulate = accumulate, offset = offset](const auto& make) {
      const at::Tensor memory = here::place(at::cat({at::zeros({offset}), start.view(-1)}));
      at::Tensor y = memory.slice(0, offset).view(start.sizes());
      make(call_of(x, weight, bias, y, accumulate));
      return y.cpu();
    });
  }
}

TEST(LinearPlans, SumsAreTheSameBits) {
  expect_equal_sums({{264, 264, 72, at::kBFloat16, true},
                     {130, 129, 136, at::kHalf, false},
                     {20, 70, 328, at::kBFloat16, true},
                     {150, 132, 40, at::kBFloat16, true, 1}});
}

// Where blocks run side by side for long, whatever waits too little shows.
TEST(LinearPlans, LongSumsAreTheSameBits) {
  if (here::emulated()) GTEST_SKIP() << "blocks of an emulated GPU run one after the other";
  expect_equal_sums({{520, 34000, 4136, at::kBFloat16, false}});
}

TEST(LinearPlans, EpiloguesAreTheSameBits) {
  at::manual_seed(7);
  constexpr int64_t rows = 140, inputs = 72, size = 64, query_heads = 2, kv_heads = 1;
  const at::Tensor x = here::place(at::randn({rows, inputs}).to(at::kBFloat16));
  const PackedWeight gate_up = here::place(PackedWeight::pack({at::randn({140, inputs}).to(at::kBFloat16)}));
  expect_equal_plans(x, [&](const auto& make) {
    at::Tensor out = here::place(at::zeros({rows, 70}, at::kBFloat16));
    make(call_of(x, gate_up, out));
    return out.cpu();
  });
  // Whole numbers make ties; 137 outputs end within a panel; a row has no largest sum.
  const at::Tensor whole = at::randint(-3, 4, {rows, inputs}).to(at::kBFloat16);
  whole[5].fill_(std::numeric_limits<float>::quiet_NaN());
  const at::Tensor placed = here::place(whole);
  const PackedWeight head =
      here::place(PackedWeight::pack({at::randint(-3, 4, {137, inputs}).to(at::kBFloat16)}));
  expect_equal_plans(placed, [&](const auto& make) {
    at::Tensor keys = here::place(at::zeros({rows, 9}, at::kLong));
    LinearCall call = arg_max_call_of(placed, head, keys);
    call.best_keys = reinterpret_cast<uint64_t*>(keys.mutable_data_ptr<int64_t>());
    make(call);
    return keys.cpu();
  });
  const at::Tensor cos = here::place(at::rand({rows, size / 2})),
                   sin = here::place(at::rand({rows, size / 2})),
                   slots = here::place(at::randperm(160).slice(0, 0, rows).contiguous());
  for (const bool norms : {false, true}) {
    QkvWeight qkv{here::place(
        PackedWeight::pack({at::randn({(query_heads + 2 * kv_heads) * size, inputs}).to(at::kBFloat16)}))};
    if (norms) qkv.query_norm = here::place(at::rand({size})), qkv.key_norm = here::place(at::rand({size}));
    if (!norms) qkv.bias = here::place(at::randn({(query_heads + 2 * kv_heads) * size}));
    expect_equal_plans(x, [&](const auto& make) {
      at::Tensor q = here::place(at::zeros({rows, query_heads, size})),
                 k = here::place(at::zeros({10, kv_heads, 16, size}, at::kBFloat16)),
                 v = here::place(k.cpu());
      make(call_of(x, qkv, cos, sin, slots, q, k, v));
      return at::cat({q.cpu().view(-1), k.cpu().to(at::kFloat).view(-1), v.cpu().to(at::kFloat).view(-1)});
    });
  }
}

}  // namespace
}  // namespace clover::kernels::cuda
