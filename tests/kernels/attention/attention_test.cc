#include "kernels/attention/attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "tests/kernels/here.h"

namespace clover::kernels {
namespace {

/// One query row: its sequence and the slots of its path, of which the first `contiguous` are 0, 1, 2 ...
struct Row {
  int sequence;
  int contiguous;
  std::vector<int> rest;

  std::vector<int> slots() const {
    std::vector<int> all(contiguous);
    std::iota(all.begin(), all.end(), 0);
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }
};

/// Keys and values by sequence and slot, and the rows that read them.
struct Scene {
  Heads heads;
  at::Tensor keys, values;  // [sequences, slots, Hkv, d]
  std::vector<Row> rows;
  at::Tensor q;  // [R, Hq, d]
};

Scene make_scene(Heads heads, int64_t sequences, int64_t slots, std::vector<Row> rows, at::ScalarType type) {
  Scene scene{heads,
              at::randn({sequences, slots, heads.kv, heads.size}).to(type),
              at::randn({sequences, slots, heads.kv, heads.size}).to(type),
              std::move(rows),
              {}};
  scene.q = at::randn({static_cast<int64_t>(scene.rows.size()), heads.query, heads.size});
  return scene;
}

at::Tensor ints(const std::vector<int>& values) {
  return at::tensor(values, at::kInt);
}

/// Attention of the rows `chosen` over a cache of pages of `page_size`, the pages in an order set by `seed`;
/// `room`: in the page table for so many pages more.
at::Tensor attend(const Scene& scene, const std::vector<int64_t>& chosen, int64_t page_size, int seed,
                  at::ScalarType result = at::kFloat, int64_t room = 0) {
  const int64_t sequences = scene.keys.size(0), slots = scene.keys.size(1);
  const int64_t pages = (slots + page_size - 1) / page_size;
  at::manual_seed(seed);
  const at::Tensor table = at::randperm(sequences * pages, at::kInt).reshape({sequences, pages});
  const auto shape = {sequences * pages, scene.heads.kv, page_size, scene.heads.size};
  at::Tensor k = at::full(shape, 9.0f, scene.keys.options()), v = k.clone();
  for (int64_t b = 0; b < sequences; ++b) {
    for (int64_t s = 0; s < slots; ++s) {
      const int64_t page = table[b][s / page_size].item<int>();
      k[page].select(1, s % page_size).copy_(scene.keys[b][s]);
      v[page].select(1, s % page_size).copy_(scene.values[b][s]);
    }
  }
  std::vector<int> sequence, contiguous, begin = {0}, path;
  std::vector<at::Tensor> q;
  for (int64_t r : chosen) {
    const Row& row = scene.rows[r];
    sequence.push_back(row.sequence);
    contiguous.push_back(row.contiguous);
    path.insert(path.end(), row.rest.begin(), row.rest.end());
    begin.push_back(static_cast<int>(path.size()));
    q.push_back(scene.q[r]);
  }
  const AttentionRows rows{ints(sequence), ints(contiguous), ints(begin), ints(path),
                           at::cat({table, at::zeros({sequences, room}, at::kInt)}, 1)};
  const int64_t count = static_cast<int64_t>(chosen.size());
  at::Tensor out = at::full({count, scene.heads.query * scene.heads.size}, 5.0f, at::TensorOptions(result));
  here::tree_attention(at::stack(q), k, v, rows, 1 / std::sqrt(scene.heads.size), out);
  return out;
}

std::vector<int64_t> everyone(const Scene& scene) {
  std::vector<int64_t> all(scene.rows.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Each of `rows` alone, from pages of another size and order.
void expect_same_alone(const Scene& scene, const std::vector<int64_t>& rows, int64_t page_size,
                       const at::Tensor& expected) {
  for (const int64_t row : rows)
    EXPECT_TRUE(same_bits(attend(scene, {row}, page_size, 2)[0], expected[row])) << "row " << row;
}

/// The plain loop, in double: softmax over the row's path.
at::Tensor plain(const Scene& scene) {
  const int64_t d = scene.heads.size, group = scene.heads.query / scene.heads.kv;
  at::Tensor out = at::zeros({scene.q.size(0), scene.heads.query * d}, at::kDouble);
  const at::Tensor keys = scene.keys.to(at::kDouble), values = scene.values.to(at::kDouble),
                   qd = scene.q.to(at::kDouble);
  const auto k = keys.accessor<double, 4>(), v = values.accessor<double, 4>();
  const auto q = qd.accessor<double, 3>();
  auto o = out.accessor<double, 2>();
  for (size_t r = 0; r < scene.rows.size(); ++r) {
    const int b = scene.rows[r].sequence;
    for (int64_t h = 0; h < scene.heads.query; ++h) {
      std::vector<double> weights;
      double total = 0;
      for (int slot : scene.rows[r].slots()) {
        double score = 0;
        for (int64_t i = 0; i < d; ++i) score += q[r][h][i] * k[b][slot][h / group][i];
        weights.push_back(std::exp(score / std::sqrt(d)));
        total += weights.back();
      }
      size_t at = 0;
      for (int slot : scene.rows[r].slots()) {
        for (int64_t i = 0; i < d; ++i) o[r][h * d + i] += weights[at] / total * v[b][slot][h / group][i];
        ++at;
      }
    }
  }
  return out;
}

/// Whether `out` is the plain loop's result.  A GPU may round queries and weights to 16 bits where the
/// cache's numbers have no more: as FlashAttention does, and models of LibTorch's in 16 bits anyway.
bool is_plain(const at::Tensor& out, const Scene& scene) {
  const at::ScalarType type = scene.keys.scalar_type();
  const int64_t size = scene.heads.size;
  const bool exact =
      type == at::kFloat || (size != 64 && size != 128) || here::place(at::zeros({1})).is_cpu();
  const double tolerance = exact ? 1e-5 : type == at::kHalf ? 2.5e-3 : 2e-2;
  return at::allclose(out.to(at::kDouble), plain(scene), 1e-5, tolerance);
}

/// Two sequences; a tree of five nodes behind 70 tokens, a prefill chunk, single rows, an empty path.
std::vector<Row> mixed_rows() {
  std::vector<Row> rows = {
      {0, 70, {70}}, {0, 70, {70, 71}}, {0, 70, {70, 72}}, {0, 70, {70, 71, 73}}, {0, 70, {70, 72, 74}}};
  for (int position = 120; position < 140; ++position) rows.push_back({1, position, {position}});
  rows.push_back({1, 64, {}});
  rows.push_back({1, 0, {0}});
  rows.push_back({0, 0, {5, 3, 100}});
  rows.push_back({0, 0, {}});
  rows.push_back({0, 63, {80, 90}});
  return rows;
}

TEST(TreeAttention, IsThePlainLoop) {
  at::manual_seed(1);
  on_every_path([] {
    for (const Heads& heads : {Heads{2, 1, 8},
                               {3, 3, 16},
                               {9, 3, 64},
                               {4, 2, 80},
                               {2, 2, 96},
                               {1, 1, 128},
                               {20, 1, 8},
                               {2, 1, 160},
                               {2, 1, 256}}) {
      for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const Scene scene = make_scene(heads, 2, 150, mixed_rows(), type);
        const at::Tensor out = attend(scene, everyone(scene), 16, 1);
        EXPECT_TRUE(is_plain(out, scene))
            << heads.query << "/" << heads.kv << " heads of " << heads.size << ", " << type;
      }
    }
  });
}

/// A tree and single rows behind hundreds of tokens, ancestors on both sides of the edges of blocks.
std::vector<Row> long_rows() {
  return {{0, 600, {600}},      {0, 600, {600, 601}}, {0, 600, {600, 602}}, {0, 600, {600, 601, 603}},
          {0, 511, {650, 651}}, {0, 512, {}},         {0, 513, {}},         {0, 256, {}},
          {0, 255, {640, 2}},   {0, 640, {690}},      {0, 1, {}},           {0, 0, {}}};
}

TEST(TreeAttention, LongPathsAreThePlainLoopAndTheSameBitsAlone) {
  on_every_path([] {
    for (auto [heads, type] : {std::pair{Heads{4, 2, 16}, at::kFloat},
                               {{4, 2, 16}, at::kBFloat16},
                               {{4, 2, 32}, at::kBFloat16},
                               {{8, 2, 64}, at::kBFloat16},
                               {{20, 1, 128}, at::kBFloat16}}) {
      const Scene scene = make_scene(heads, 1, 700, long_rows(), type);
      const at::Tensor out = attend(scene, everyone(scene), 64, 1);
      EXPECT_TRUE(is_plain(out, scene)) << heads.size << " " << type;
      expect_same_alone(scene, everyone(scene), 16, out);
      // With threads to spare a row's keys are shared out among them.
      for (int threads : {1, 2, 3}) {
        with_threads(threads, [&] {
          EXPECT_TRUE(same_bits(attend(scene, {3, 9}, 64, 3)[0], out[3])) << threads;
        });
      }
    }
  });
}

// Each call of the emulation finds a GPU of another size, among whose multiprocessors keys are shared out.
TEST(TreeAttention, WhoeverTakesItsKeysARowIsTheSameBits) {
  on_every_path([] {
    for (auto [heads, type] : {std::pair{Heads{4, 1, 64}, at::kBFloat16}, {{2, 1, 32}, at::kFloat}}) {
      std::vector<Row> rows = long_rows();
      for (int row = 0; row < 12; ++row) rows.push_back({row % 2, 500 + 10 * row, {600 + row, 640}});
      const Scene scene = make_scene(heads, 2, 700, rows, type);
      const at::Tensor expected = attend(scene, everyone(scene), 64, 1);
      EXPECT_TRUE(is_plain(expected, scene)) << heads.size;
      for (int time = 1; time < (here::emulated() ? 5 : 2); ++time)
        EXPECT_TRUE(same_bits(attend(scene, everyone(scene), 64, 1, at::kFloat, 10 * time), expected))
            << time;
    }
  });
}

// So long that what a GPU makes of their parts is merged many at a time, beside rows that are nothing like
// it.
TEST(TreeAttention, VeryLongPathsAreThePlainLoop) {
  std::vector<Row> prompt;
  for (int position = 1015; position < 1035; ++position) prompt.push_back({0, position + 1, {}});
  on_every_path([&] {
    for (const Scene& scene :
         {make_scene({2, 1, 8}, 1, 8500, {{0, 8450, {8460, 8455}}, {0, 8192, {}}, {0, 3, {}}}, at::kBFloat16),
          make_scene({2, 1, 64}, 1, 2300,
                     {{0, 1024, {}}, {0, 2200, {2250, 2249}}, {0, 1023, {2260, 2261}}, {0, 1025, {}}},
                     at::kBFloat16),
          make_scene({8, 1, 64}, 1, 1040, prompt, at::kBFloat16)}) {
      const at::Tensor out = attend(scene, everyone(scene), 512, 1);
      EXPECT_TRUE(is_plain(out, scene));
      expect_same_alone(scene, {1, 2}, 512, out);
    }
  });
}

// Prompts fill tiles of all sizes, and rows without keys of a block stand among those that have some.
TEST(TreeAttention, APromptIsThePlainLoopAndARowTheSameBitsAlone) {
  on_every_path([] {
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      std::vector<Row> rows{{0, 0, {}}, {0, 100, {190, 3}}};
      for (int position = 60; position < 200; ++position) rows.push_back({0, position + 1, {}});
      const Scene scene = make_scene({2, 1, 128}, 1, 200, rows, type);
      const at::Tensor out = attend(scene, everyone(scene), 64, 1);
      EXPECT_TRUE(is_plain(out, scene)) << type;
      expect_same_alone(scene, {0, 1, 4, 70, 139}, 8, out);
    }
  });
}

// So much room for pages that a GPU takes the rows in two goes.
TEST(TreeAttention, RoomForLongPathsChangesNothing) {
  on_every_path([] {
    std::vector<Row> rows;
    for (int row = 0; row < 90; ++row) rows.push_back({0, row % 20, {row % 20}});
    const Scene scene = make_scene({4, 1, 256}, 1, 32, rows, at::kBFloat16);
    const std::vector<int64_t> all = everyone(scene);
    EXPECT_TRUE(
        same_bits(attend(scene, all, 16, 1, at::kBFloat16), attend(scene, all, 16, 1, at::kBFloat16, 6200)));
  });
}

// Promise 1: the same bits for any batch, page layout, page size and thread count.
TEST(TreeAttention, ARowDoesNotDependOnItsSurroundings) {
  on_every_path([] {
    for (const Heads& heads : {Heads{6, 2, 24}, {6, 2, 32}, {9, 3, 64}, {5, 1, 96}}) {
      const Scene scene = make_scene(heads, 2, 150, mixed_rows(), at::kBFloat16);
      const at::Tensor expected = attend(scene, everyone(scene), 16, 1);
      for (size_t r = 0; r < scene.rows.size(); ++r) {
        const auto row = static_cast<int64_t>(r);
        ASSERT_TRUE(same_bits(attend(scene, {row}, 16, 2)[0], expected[row])) << "alone, row " << r;
      }
      std::vector<int64_t> backwards = everyone(scene);
      std::reverse(backwards.begin(), backwards.end());
      EXPECT_TRUE(same_bits(attend(scene, backwards, 16, 3).flip(0), expected));
      for (int64_t page_size : {1, 7, 64, 256}) {
        EXPECT_TRUE(same_bits(attend(scene, everyone(scene), page_size, 4), expected)) << page_size;
      }
      for (int threads : {1, 2, 3}) {
        with_threads(threads,
                     [&] { EXPECT_TRUE(same_bits(attend(scene, everyone(scene), 16, 1), expected)); });
      }
    }
  });
}

// The same tokens, once as a chain in the cache and once as tree nodes lying elsewhere.
TEST(TreeAttention, APathIsTheSameBitsWhereverItsSlotsAre) {
  on_every_path([] {
    for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      Scene scene =
          make_scene({4, 2, 32}, 1, 200,
                     {{0, 66, {}}, {0, 60, {180, 120, 121, 199, 70, 61}}, {0, 62, {62, 63, 64, 65}}}, type);
      const std::vector<int> from = {60, 61, 62, 63, 64, 65}, to = {180, 120, 121, 199, 70, 61};
      const at::Tensor keys = scene.keys.clone(), values = scene.values.clone();
      for (size_t i = 0; i < from.size(); ++i) {
        scene.keys[0][to[i]].copy_(keys[0][from[i]]);
        scene.values[0][to[i]].copy_(values[0][from[i]]);
      }
      // Slot 61 now holds position 65's key, so the contiguous rows read a cache of their own.
      Scene chain = scene;
      chain.keys = keys;
      chain.values = values;
      chain.q = scene.q = scene.q.slice(0, 0, 1).expand_as(scene.q).contiguous();
      const at::Tensor expected = attend(chain, {0}, 16, 1);
      EXPECT_TRUE(same_bits(attend(scene, {1}, 16, 1), expected));
      EXPECT_TRUE(same_bits(attend(chain, {2}, 16, 1), expected));
    }
  });
}

// A path's front does not change when the path grows: chunked prefill equals prefill at once.
TEST(TreeAttention, ChunksOfAPrefillAreTheSameBits) {
  on_every_path([] {
    std::vector<Row> rows;
    for (int position = 0; position < 130; ++position) rows.push_back({0, position + 1, {}});
    for (int64_t size : {16, 64}) {
      const Scene scene = make_scene({3, 1, size}, 1, 130, rows, at::kBFloat16);
      const std::vector<int64_t> all = everyone(scene);
      const at::Tensor expected = attend(scene, all, 16, 1);
      for (int64_t chunk : {1, 5, 64, 100}) {
        std::vector<at::Tensor> parts;
        for (int64_t first = 0; first < 130; first += chunk) {
          const std::vector<int64_t> some(all.begin() + first,
                                          all.begin() + std::min<int64_t>(130, first + chunk));
          parts.push_back(attend(scene, some, 16, 1));
        }
        EXPECT_TRUE(same_bits(at::cat(parts), expected)) << chunk;
      }
    }
  });
}

TEST(TreeAttention, AnEmptyPathYieldsZerosAndResultsAreRoundedOnce) {
  on_every_path([] {
    const Scene scene = make_scene({2, 1, 8}, 1, 20, {{0, 0, {}}, {0, 10, {10}}}, at::kFloat);
    const at::Tensor full = attend(scene, {0, 1}, 4, 1);
    EXPECT_TRUE(same_bits(full[0], at::zeros({16})));
    for (at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      EXPECT_TRUE(same_bits(attend(scene, {0, 1}, 4, 1, type), full.to(type)));
    }
  });
}

TEST(TreeAttention, LargeScoresDoNotOverflow) {
  on_every_path([] {
    Scene scene = make_scene({1, 1, 8}, 1, 200, {{0, 200, {}}}, at::kFloat);
    scene.q.fill_(50);
    scene.keys.zero_();
    scene.keys[0][150].fill_(10);
    const at::Tensor out = attend(scene, {0}, 16, 1);
    EXPECT_TRUE(at::allclose(out[0], scene.values[0][150].reshape({-1})));
  });
}

TEST(TreeAttention, AnInfinityReachesOnlyRowsThatAttendToIt) {
  if (!here::place(at::zeros({1})).is_cpu())
    GTEST_SKIP() << "a GPU's kernels ask for finite values (docs/decisions/0005-cuda-kernels.md)";
  on_every_path([] {
    for (int64_t size : {24, 64}) {
      std::vector<Row> rows;
      for (int position = 0; position < 40; ++position) rows.push_back({0, position + 1, {}});
      Scene scene = make_scene({3, 1, size}, 1, 40, rows, at::kBFloat16);
      const at::Tensor expected = attend(scene, everyone(scene), 16, 1);
      scene.values[0][20].fill_(std::numeric_limits<float>::infinity());
      const at::Tensor out = attend(scene, everyone(scene), 16, 1);
      EXPECT_TRUE(same_bits(out.slice(0, 0, 20), expected.slice(0, 0, 20))) << size;
      EXPECT_FALSE(out.slice(0, 20).isfinite().any().item<bool>()) << size;
    }
  });
}

TEST(TreeAttention, SaysWhatDoesNotFit) {
  const Scene scene = make_scene({2, 1, 8}, 1, 20, {{0, 5, {}}}, at::kFloat);
  const AttentionRows rows{ints({0}), ints({5}), ints({0, 0}), at::empty({0}, at::kInt),
                           at::zeros({1, 2}, at::kInt)};
  const at::Tensor k = at::zeros({2, 1, 16, 8});
  at::Tensor out = at::empty({1, 16});
  const auto attempt = [&](const at::Tensor& q, const at::Tensor& keys, const AttentionRows& some) {
    return error_of([&] { here::tree_attention(q, keys, keys, some, 1, out); });
  };
  EXPECT_EQ(attempt(scene.q, k, rows), "");
  EXPECT_NE(attempt(scene.q, at::zeros({2, 1, 16, 12}), rows).find("head size is 12"), std::string::npos);
  EXPECT_NE(attempt(scene.q, at::zeros({2, 3, 16, 8}), rows).find("2 query heads are not a multiple of 3"),
            std::string::npos);
  AttentionRows wrong = rows;
  wrong.contiguous = ints({5, 5});
  EXPECT_NE(attempt(scene.q, k, wrong).find("contiguous has shape [2]"), std::string::npos);
  wrong = rows;
  wrong.sequence = at::zeros({1}, at::kLong);
  EXPECT_NE(attempt(scene.q, k, wrong).find("sequence is Long, expected Int"), std::string::npos);
}

}  // namespace
}  // namespace clover::kernels
