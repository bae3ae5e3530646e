// Medusa's own layout (FasterDecoding/Medusa, commit e2a5d20), which TGI and TensorRT-LLM read as well:
// config.json and medusa_lm_head.safetensors with {head}.{layer}.linear.{weight,bias}; behind a head's
// layers, {head}.{layers}.weight is its vocabulary matrix, or the target's LM head is shared where it is
// missing.
#include <algorithm>
#include <cstdio>

#include "data/files/error.h"
#include "data/files/files.h"
#include "train/heads/formats/format.h"
#include "train/heads/formats/published_config.h"

namespace clover::train {
namespace {

using data::InputError;
using nlohmann::json;

constexpr const char* weights_file = "medusa_lm_head.safetensors";
constexpr const char* pickle = "medusa_lm_head.pt";

/// The published name of a tensor of heads with so many layers.
std::string name_of(const std::string& own, int64_t layers) {
  if (const auto vocabulary = numbered(own, "vocabulary"))
    return c10::str(vocabulary->number, ".", layers, ".weight");
  const auto head = numbered(own, "head");
  if (!head) throw InputError("Tensor " + own + " has no name in Medusa's layout.");
  const std::string layer = head->rest.starts_with("linear.") ? "0." : "";
  return c10::str(head->number, ".", layer, head->rest);
}

HeadsImport take_over(const PublishedFolder& folder, const model::TargetConfig& /*target*/) {
  if (!folder.holds(weights_file)) refuse_pickle(folder, pickle, weights_file);
  PublishedConfig keys(folder.config, folder.config_file());
  const int64_t stated = keys.count("medusa_num_heads"), layers = keys.count("medusa_num_layers");
  keys.ignore({"hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
               "intermediate_size", "medusa_choices"});
  keys.finish();
  const std::filesystem::path weights = folder.path / weights_file;
  const std::set<std::string> names = names_of_weights(weights);
  int64_t heads = 0;
  for (const std::string& name : names)
    if (const auto head = numbered(name, "")) heads = std::max(heads, head->number + 1);
  HeadsImport taken{.kind = "medusa",
                    .settings = {{"heads", heads},
                                 {"layers", layers},
                                 {"own_heads", names.contains(c10::str("0.", layers, ".weight"))}},
                    .weights = weights,
                    .name_of = [layers](const std::string& own) { return name_of(own, layers); }};
  taken.notes = untied_blocks(weights, heads, 0, layers, [](int64_t head, int64_t block) {
    return std::to_string(head) + "." + std::to_string(block) + ".linear.weight";
  });
  if (heads != stated)
    taken.notes.push_back(folder.config_file().string() + ": \"medusa_num_heads\" is " +
                          std::to_string(stated) + ", but the weights are those of " + std::to_string(heads) +
                          " heads, which are taken");
  return taken;
}

/// InputError unless the blocks of a head are one and the same, as they are in Medusa's class, which makes
/// its layers by multiplying a list.
void check_tied(const HeadsExport& heads, int64_t layers) {
  for (const auto& [name, tensor] : heads.tensors) {
    const auto head = numbered(name, "head");
    if (!head || head->rest.starts_with("linear.")) continue;
    const std::string first = c10::str("head", head->number, head->rest.substr(head->rest.find('.')));
    const auto same = std::ranges::find(heads.tensors, first, [](const auto& named) { return named.first; });
    if (same != heads.tensors.end() && at::equal(same->second, tensor)) continue;
    throw InputError(
        heads.from.string() + " has heads of " + std::to_string(layers) +
        " different blocks, and Medusa's own code has one block for all layers of a head: export "
        "them as medusa-vllm.");
  }
}

void write(const HeadsExport& heads) {
  const auto count = heads.drafter().value("heads", int64_t{0});
  const auto layers = heads.drafter().value("layers", int64_t{1});
  const bool own_heads = heads.drafter().value("own_heads", false);
  check_tied(heads, layers);
  if (own_heads && heads.token_map().defined())
    throw InputError(heads.from.string() +
                     " has a draft vocabulary and vocabulary matrices of its own, and the format medusa has "
                     "the whole vocabulary: export them as medusa-vllm.");
  // The draft vocabulary of a shared head is left out: it only saves time, and these readers use the whole LM
  // head.
  const data::NamedTensors tensors =
      renamed(heads.tensors, [layers](const std::string& own) { return name_of(own, layers); });
  const int64_t each = 2 * layers + (own_heads ? 1 : 0);
  if (std::ssize(tensors) != count * each)
    throw InputError((heads.from / "config.json").string() + ": \"heads\" is " + std::to_string(count) +
                     ", but the weights are those of " + std::to_string(std::ssize(tensors) / each) + ".");
  data::write_safetensors(heads.to / weights_file, tensors, {{"format", "pt"}});
  if (heads.target_folder.empty())
    std::fprintf(stderr, "config.json: \"base_model_name_or_path\" is empty: name the target there\n");
  const json config{{"medusa_num_heads", count},
                    {"medusa_num_layers", layers},
                    {"base_model_name_or_path", heads.target_folder},  // readers load the base model from it
                    {"model_type", "medusa"}};
  data::write_file_atomically(heads.to / "config.json", config.dump(2) + "\n");
}

}  // namespace

HeadsFormat medusa_format() {
  return {"medusa",
          "medusa",
          "Medusa's own, TGI's and TensorRT-LLM's: config.json, medusa_lm_head.safetensors",
          "medusa_lm_head.safetensors (or medusa_lm_head.pt, to be converted)",
          [](const PublishedFolder& folder) { return folder.holds(weights_file) || folder.holds(pickle); },
          take_over,
          write};
}

}  // namespace clover::train
