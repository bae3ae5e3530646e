// Errors name damaged or unsuitable inputs, which do not destroy finished training.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/train/commands/fit_process.h"
#include "train/run/checkpoint.h"

namespace clover::train {
namespace {

using testing::AllOf, testing::HasSubstr, testing::Not;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

class DamageProcessTest : public FitProcessTest {
 protected:
  std::vector<std::string> short_run(const fs::path& output, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"--steps", "6", "--kind", "medusa"});
    return command(output, more);
  }
  std::vector<std::string> short_run_on(const fs::path& target, std::vector<std::string> more = {}) const {
    auto words = short_run(folder_ / "run", std::move(more));
    *(std::ranges::find(words, "--target") + 1) = target;
    return words;
  }
  static std::function<at::Tensor(const at::Tensor&)> one_is(double value) {
    return [value](const at::Tensor& tensor) {
      at::Tensor changed = tensor.clone();
      changed.view({-1})[changed.numel() / 2] = value;
      return changed;
    };
  }
  /// A copy of the target with tensor `name` changed.
  fs::path target_with(const std::string& name,
                       const std::function<at::Tensor(const at::Tensor&)>& change) const {
    const fs::path target = folder_ / "target";
    fs::remove_all(target);
    fs::copy(tiny_target(), target);
    change_tensor(target / "model.safetensors", name, change);
    return target;
  }
  std::vector<std::string> names_in(const fs::path& folder) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }
  /// Exit code and output of a command.
  std::pair<int, std::string> run_command(const std::vector<std::string>& words) const {
    fs::remove(folder_ / "stderr");
    const int code = run(words);
    return {code, messages()};
  }
};

TEST_F(DamageProcessTest, ExportRefusesWhatTheDtypeCannotHold) {
  const fs::path output = folder_ / "run", heads = output / "last";
  ASSERT_EQ(run(short_run(output)), 0) << messages();
  change_tensor(heads / "model.safetensors", "head1.linear.weight", one_is(-1e6));
  const std::vector<std::string> before = names_in(folder_);
  for (const char* format : {"clover", "medusa"}) {
    const auto [code, words] = run_command({program(), "export", "--heads", heads, "--format", format,
                                            "--dtype", "float16", "--output", folder_ / "exported"});
    EXPECT_EQ(code, 2);
    EXPECT_THAT(words, AllOf(HasSubstr("tensor head1.linear.weight"), HasSubstr("as large as 999424"),
                             HasSubstr("--dtype bfloat16 or float32")));
    EXPECT_EQ(names_in(folder_), before) << "nothing is left";
  }
  // Training cannot start from them on a target that runs in that dtype.
  const auto [code, words] =
      run_command(short_run(folder_ / "no", {"--init-heads", heads, "--dtype", "float16"}));
  EXPECT_EQ(code, 2) << words;
  EXPECT_THAT(words, HasSubstr("tensor head1.linear.weight holds values as large as 999424"));
  EXPECT_FALSE(fs::exists(folder_ / "no"));
  EXPECT_EQ(run({program(), "export", "--heads", heads, "--dtype", "float32", "--output", folder_ / "wide"}),
            0);
  EXPECT_EQ(
      data::SafetensorsReader::open(folder_ / "wide").read("head1.linear.weight").abs().max().item<double>(),
      999424);
  change_tensor(output / "checkpoints/step-000006/state.safetensors", "weight.head0.linear.bias",
                one_is(7e4));
  const auto [other_code, other_words] = run_command(
      {program(), "export", "--run", output, "--dtype", "float16", "--output", folder_ / "exported"});
  EXPECT_EQ(other_code, 2);
  EXPECT_THAT(other_words, HasSubstr("tensor head0.linear.bias"));
  EXPECT_FALSE(fs::exists(folder_ / "exported"));
}

TEST_F(DamageProcessTest, HeadsThatAreNoNumbersAreNoticedByEveryReader) {
  const fs::path output = folder_ / "run", heads = output / "last";
  ASSERT_EQ(run(short_run(output)), 0) << messages();
  const auto whole = contents_of(heads);
  for (const double value : {infinity, not_a_number}) {
    change_tensor(heads / "model.safetensors", "head2.linear.weight", one_is(value));
    for (const std::vector<std::string>& words : {
             std::vector<std::string>{program(), "export", "--heads", heads, "--output", folder_ / "no"},
             {program(), "export", "--heads", heads, "--dtype", "float32", "--output", folder_ / "no"},
             short_run(folder_ / "no", {"--init-heads", heads}),
             {CLOVER_BINARY_DIR "/bin/clover-infer", "inspect", heads, "--target", tiny_target(), "--verify"},
             {program(), "eval", "--target", tiny_target(), "--heads", heads, "--input", folder_ / "store"},
         }) {
      const auto [code, what] = run_command(words);
      EXPECT_EQ(code, 2) << what;
      // The tiny target has no tokenizer, which some commands report first.
      EXPECT_THAT(what, testing::AnyOf(HasSubstr("tensor head2.linear.weight holds what is no finite number"),
                                       HasSubstr("tokenizer.json")));
      EXPECT_FALSE(fs::exists(folder_ / "no"));
    }
    for (const auto& [file, bytes] : whole) data::write_file_atomically(file, bytes);
  }
}

TEST_F(DamageProcessTest, WeightsAndMomentsThatAreNoNumbersAreNotContinuedFrom) {
  const fs::path output = folder_ / "run", checkpoint = output / "checkpoints/step-000006";
  ASSERT_EQ(run(short_run(output)), 0) << messages();
  const auto whole = contents_of(checkpoint);
  for (const char* name :
       {"weight.head0.linear.weight", "exp_avg.head1.linear.bias", "exp_avg_sq.head2.linear.weight"}) {
    change_tensor(checkpoint / "state.safetensors", name, one_is(not_a_number));
    const auto before = contents_of(output);
    auto [code, what] = run_command(short_run(output, {"--resume", "auto"}));
    EXPECT_EQ(code, 2) << what;
    EXPECT_THAT(what, AllOf(HasSubstr("tensor " + std::string(name)), HasSubstr("step-000003")));
    EXPECT_TRUE(contents_of(output) == before);
    std::tie(code, what) = run_command({program(), "export", "--run", output, "--output", folder_ / "no"});
    EXPECT_EQ(code, 2) << what;
    EXPECT_THAT(what, HasSubstr("tensor " + std::string(name)));
    for (const auto& [file, bytes] : whole) data::write_file_atomically(file, bytes);
  }
  EXPECT_EQ(run(short_run(output, {"--resume", "auto"})), 0) << messages();
}

TEST_F(DamageProcessTest, ADamagedBestIsWrittenAnewAndTheRunEnds) {
  const fs::path output = folder_ / "run", best = output / "best";
  ASSERT_EQ(run(short_run(output)), 0) << messages();
  const auto whole = contents_of(output / "last");
  const std::vector<std::function<void()>> damages{
      [&] { fs::resize_file(best / "model.safetensors", 1000); },
      [&] { fs::resize_file(best / "config.json", 10); },
      [&] { fs::remove(best / "model.safetensors"); },
      [&] { change_tensor(best / "model.safetensors", "head0.linear.bias", one_is(not_a_number)); },
      [&] { data::write_file_atomically(best / "config.json", "[]"); },
      [&] {
        fs::remove_all(best);
        data::write_file_atomically(best, "no folder");
      },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    damages[i]();
    const auto [code, what] = run_command(short_run(output, {"--resume", "auto"}));
    EXPECT_EQ(code, 0) << i << what;
    EXPECT_THAT(what, HasSubstr("best/ is damaged and will be written anew")) << i;
    EXPECT_TRUE(data::read_file(best / "model.safetensors") == weights(output)) << i;
    EXPECT_TRUE(fs::is_regular_file(best / "config.json"));
  }
  EXPECT_THAT(run_command(short_run(output, {"--resume", "auto"})).second, Not(HasSubstr("damaged")));
}

TEST_F(DamageProcessTest, ATargetThatIsNoNumberIsNamedAndNotTheLearningRate) {
  for (const auto& [name, value] : {std::pair{"model.layers.0.mlp.up_proj.weight", not_a_number},
                                    {"model.norm.weight", infinity},
                                    {"model.layers.1.self_attn.q_proj.weight", -infinity}}) {
    const fs::path target = target_with(name, one_is(value));
    const auto [code, what] = run_command(short_run_on(target, {"--lr", "0.001"}));
    EXPECT_EQ(code, 1) << what;
    EXPECT_THAT(what, AllOf(HasSubstr("tensor " + std::string(name) + " holds what is no finite number"),
                            Not(HasSubstr("--lr"))));
    fs::remove_all(folder_ / "run");
  }
}

TEST_F(DamageProcessTest, ATargetTooLargeForItsDtypeIsSaidToBeSo) {
  const fs::path weight = target_with("model.layers.0.mlp.up_proj.weight", one_is(1e6));
  auto [code, what] = run_command(short_run_on(weight, {"--dtype", "float16"}));
  EXPECT_EQ(code, 1) << what;
  EXPECT_THAT(what, AllOf(HasSubstr("tensor model.layers.0.mlp.up_proj.weight holds values as large as"),
                          HasSubstr("--dtype bfloat16 or float32")));
  fs::remove_all(folder_ / "run");
  // The weights fit in the dtype, but the hidden states overflow.
  const fs::path states =
      target_with("model.norm.weight", [](const at::Tensor& norm) { return at::full_like(norm, 65000); });
  std::tie(code, what) = run_command(short_run_on(states, {"--dtype", "float16"}));
  EXPECT_EQ(code, 1) << what;
  EXPECT_THAT(what, AllOf(HasSubstr("computes what is no finite number in float16"),
                          HasSubstr("--dtype bfloat16 or float32"), Not(HasSubstr("--lr"))));
}

TEST_F(DamageProcessTest, AFeatureFileThatHoldsNoNumbersIsNamed) {
  const fs::path file = folder_ / "features.safetensors";
  ASSERT_EQ(run(short_run(folder_ / "first", {"--feature-file", file})), 0) << messages();
  auto about = data::SafetensorsReader::open(file).metadata();
  about.erase("checksum");  // as in older files
  data::NamedTensors tensors;
  for (const std::string name : {"rows", "pre_norm", "post_norm"})
    tensors.emplace_back(name, data::SafetensorsReader::open(file).read(name).clone());
  tensors[2].second.view({-1})[77] = infinity;
  data::write_safetensors(file, tensors, about);
  const auto [code, what] = run_command(short_run(folder_ / "run", {"--feature-file", file}));
  EXPECT_EQ(code, 1) << what;
  EXPECT_THAT(what, AllOf(HasSubstr(file.string() + " holds features that are no finite numbers"),
                          HasSubstr("remove it"), Not(HasSubstr("--lr"))));
}

TEST_F(DamageProcessTest, ALearningRateThatIsTooHighIsStillBlamed) {
  const auto [code, what] =
      run_command(command(folder_ / "run", {"--lr", "1e30", "--warmup", "1", "--clip", "0"}));
  EXPECT_EQ(code, 1) << what;
  EXPECT_THAT(what, HasSubstr("begin again with a lower --lr"));
}

}  // namespace
}  // namespace clover::train
