// Oracle: tensors recorded from Hugging Face transformers by scripts/goldens/make_target_goldens.py.
#include "model/target/target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/safetensors.h"
#include "tests/support/reading.h"
#include "tests/support/temporary_folder.h"

namespace clover {
namespace {

using model::FeatureTaps;
using model::KvCache;
using model::RowBatch;
using model::Target;
using test::golden_target;
using test::read_text;
using test::to_ids;

class TinyTarget : public testing::TestWithParam<std::string> {};

TEST_P(TinyTarget, LogitsAndFeaturesAgreeWithTransformers) {
  const auto target = Target::load(golden_target(GetParam()), at::kFloat);
  const auto golden = data::SafetensorsReader::open(golden_target(GetParam()) / "golden.safetensors");
  const auto output = read_text(*target, to_ids(golden.read("ids")));
  EXPECT_LT((output.logits - golden.read("logits")).abs().max().item<float>(), 1e-4);
  EXPECT_LT((output.features.pre_norm - golden.read("pre_norm")).abs().max().item<float>(), 1e-4);
  EXPECT_LT((output.features.post_norm - golden.read("post_norm")).abs().max().item<float>(), 1e-4);
}

TEST_P(TinyTarget, PrefillChunksAndDtypesKeepEveryBit) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto target = Target::load(golden_target(GetParam()), dtype);
    const auto ids =
        to_ids(data::SafetensorsReader::open(golden_target(GetParam()) / "golden.safetensors").read("ids"));
    const at::Tensor whole = read_text(*target, ids).logits;
    for (const int64_t chunk : {1, 3, 16, 17}) {
      EXPECT_TRUE(at::equal(whole, read_text(*target, ids, chunk).logits)) << chunk << " rows, " << dtype;
    }
  }
}

/// Tapped layers equal the last layer of a target that has fewer layers.
TEST(Target, TappedLayersAreWhatIsThereAfterThem) {
  const auto folder = golden_target("llama3-rope-fp16");
  const auto reader = data::SafetensorsReader::open(folder);
  const std::vector<int64_t> ids =
      to_ids(data::SafetensorsReader::open(folder / "golden.safetensors").read("ids"));
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto target = Target::load(folder, dtype);
    const auto tapped = read_text(*target, ids, 7, {1, 2}).features;
    for (const int64_t layers : {1, 2}) {
      const test::TemporaryFolder shorter;
      auto config = data::read_json(folder / "config.json");
      config["num_hidden_layers"] = layers;
      shorter.write("config.json", config.dump());
      data::NamedTensors tensors;
      for (const std::string& name : reader.names()) {
        const std::string of = "model.layers.";
        if (!name.starts_with(of) || std::stoll(name.substr(of.size())) < layers)
          tensors.emplace_back(name, reader.read(name).clone());
      }
      data::write_safetensors(shorter / "model.safetensors", tensors);
      const at::Tensor expected = read_text(*Target::load(shorter, dtype), ids).features.pre_norm;
      const int64_t width = expected.size(1);
      EXPECT_TRUE(at::equal(expected, tapped.layers.narrow(1, (layers - 1) * width, width)))
          << layers << dtype;
    }
    const auto one = read_text(*target, ids, 1 << 20, {2}).features;
    EXPECT_TRUE(at::equal(one.layers, tapped.layers.chunk(2, 1)[1]));
    EXPECT_TRUE(at::equal(one.pre_norm, tapped.pre_norm));
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, TinyTarget,
                         testing::Values("tied-bf16", "untied-fp32", "llama3-rope-fp16",
                                         "sharded-linear-rope", "rope-parameters", "qwen2", "qwen3",
                                         "mistral", "yarn-rope", "dynamic-rope"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Texts are limited to the sliding window, within which attention sees the whole text.
TEST(Target, ReadsNoMoreThanItsWindow) {
  const auto context = [](const char* name) {
    return model::TargetConfig::read(golden_target(name)).context;
  };
  EXPECT_EQ(context("mistral"), 40);
  EXPECT_EQ(context("qwen2"), 256) << "its window is switched off";
}

/// In a batch with another sequence, each node of a tree has the same bits as when its path is read alone.
TEST(Target, TreeRowsEqualTheirPathReadAlone) {
  const auto target = Target::load(golden_target("tied-bf16"), at::kBFloat16);
  const std::vector<int64_t> prefix{5, 9, 33, 70, 12, 101, 4, 77, 60, 2, 31};
  KvCache cache(target->kv_shape(0), 64, 4);
  const int32_t other = cache.open(), sequence = cache.open();
  read_text(*target, {8, 8, 20, 30, 40}, 2, cache, other);
  read_text(*target, prefix, 5, cache, sequence);

  RowBatch batch;
  batch.add(41, other, -1);
  // root, two children, a grandchild under each, a second grandchild under the first
  const std::vector<int64_t> ids{50, 60, 61, 70, 71, 72};
  const std::vector<int32_t> parents{-1, 0, 0, 1, 2, 1};
  for (size_t i = 0; i < ids.size(); ++i) batch.add(ids[i], sequence, parents[i] < 0 ? -1 : parents[i] + 1);
  batch.wanted_rows = {0, 1, 2, 3, 4, 5, 6};
  const auto tree = target->forward(batch, cache, {});

  for (size_t node = 0; node < ids.size(); ++node) {
    std::vector<int64_t> path;
    for (int32_t at = static_cast<int32_t>(node); at >= 0; at = parents[at])
      path.insert(path.begin(), ids[at]);
    path.insert(path.begin(), prefix.begin(), prefix.end());
    EXPECT_TRUE(at::equal(read_text(*target, path).logits[-1], tree.logits[node + 1])) << "node " << node;
  }

  // After keeping the path root, 2, 4 the cache is as if these tokens had been read in order.
  cache.keep_rows(sequence, std::vector<int32_t>{0, 2, 4}, target->config().layers);
  const at::Tensor next = read_text(*target, {90}, 1, cache, sequence).logits;
  std::vector<int64_t> whole = prefix;
  for (const int64_t id : {50, 61, 71, 90}) whole.push_back(id);
  EXPECT_TRUE(at::equal(read_text(*target, whole).logits[-1], next[0]));
}

/// When few rows are wanted, only these are computed in the last layer, with the same bits in prompts and
/// trees, and with the same keys and values for later passes.
TEST(Target, WantedRowsDoNotDependOnWhatElseIsWanted) {
  const auto target = Target::load(golden_target("tied-bf16"), at::kBFloat16);
  const auto pass = [&](KvCache& cache, const std::vector<int64_t>& wanted, const FeatureTaps& taps) {
    RowBatch batch;
    const int32_t first = cache.open(), second = cache.open();
    for (int32_t i = 0; i < 20; ++i) batch.add(5 + 3 * i, first, i - 1);
    batch.add(7, second, -1);
    for (const int32_t parent : {20, 20, 21, 22, 21}) batch.add(30 + batch.size(), second, parent);
    batch.wanted_rows = wanted;
    return target->forward(batch, cache, taps);
  };
  std::vector<int64_t> everyone(26);
  std::iota(everyone.begin(), everyone.end(), 0);
  KvCache all_cache(target->kv_shape(0), 64, 4);
  const at::Tensor all = pass(all_cache, everyone, {}).logits;
  for (const std::vector<int64_t>& wanted :
       std::vector<std::vector<int64_t>>{{19}, {3, 19, 20, 24, 25}, {}}) {
    for (const FeatureTaps& taps :
         {FeatureTaps{}, FeatureTaps{.post_norm = true}, FeatureTaps{.layers = {1}}}) {
      KvCache cache(target->kv_shape(0), 64, 4);
      const auto output = pass(cache, wanted, taps);
      ASSERT_EQ(output.logits.defined(), !wanted.empty());
      if (!wanted.empty()) {
        EXPECT_TRUE(at::equal(output.logits, all.index_select(0, at::tensor(wanted, at::kLong))));
      }
      if (taps.post_norm) {
        EXPECT_EQ(output.features.post_norm.size(0), 26);
      }
      const int64_t last = target->config().layers - 1;
      EXPECT_TRUE(at::equal(cache.keys(last), all_cache.keys(last)));
      EXPECT_TRUE(at::equal(cache.values(last), all_cache.values(last)));
    }
  }
}

}  // namespace
}  // namespace clover
