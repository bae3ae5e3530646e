// Hydra's layout (zankner/Hydra, commit 3f39fbd): config.json and the state dict of the head module,
// hydra_lm_head.pt, which is to be converted to hydra_lm_head.safetensors.  Hydra++'s prefix layer rotates
// positions by a base of 10000 whatever the target does.
#include <ATen/ATen.h>

#include <cmath>

#include "data/files/error.h"
#include "train/heads/formats/format.h"
#include "train/heads/formats/published_config.h"

namespace clover::train {
namespace {

using data::InputError;
using nlohmann::json;

constexpr const char* weights_file = "hydra_lm_head.safetensors";
constexpr const char* pickle = "hydra_lm_head.pt";
constexpr const char* prefix_layer = "prefix_embeding_layer.layers.0";  // as it is spelled there
constexpr double rope_theta = 10000;

/// With a prefix layer a dropout without weights stands before each block and vocabulary matrix, and counts.
std::string name_of(const std::string& own, bool prefix) {
  if (own == "prefix_norm.weight") return "prefix_embeding_layer.norm.weight";
  constexpr std::string_view of_layer = "prefix.";
  if (own.starts_with(of_layer)) return decoder_layer_name(own.substr(of_layer.size()), prefix_layer);
  if (const auto vocabulary = numbered(own, "vocabulary"))
    return "hydra_lm_head." + std::to_string(vocabulary->number) + (prefix ? ".1." : ".") + vocabulary->rest;
  const auto head = numbered(own, "head");
  if (!head) throw InputError("Tensor " + own + " has no name in Hydra's layout.");
  const auto further = numbered(head->rest, "");  // "2.linear.weight"; the first block has no number
  std::string part = further ? further->rest : head->rest;
  if (part.starts_with("residual.")) part = "res_connection" + part.substr(part.find('.'));
  const int64_t block = further ? further->number : 0;
  return "hydra_mlp." + std::to_string(head->number) + "." + std::to_string(prefix ? 2 * block + 1 : block) +
         "." + part;
}

/// InputError when the stored inverse frequencies of the prefix layer are not those of base 10000.
void check_rotation(const data::SafetensorsReader& reader, const std::string& name,
                    const PublishedConfig& keys) {
  if (!reader.contains(name)) return;
  const at::Tensor stored = reader.read(name).to(at::kDouble).flatten();
  const at::Tensor pairs = at::arange(stored.numel(), at::kDouble);
  const at::Tensor plain = (pairs * (-std::log(rope_theta) / static_cast<double>(stored.numel()))).exp();
  if (!((stored - plain).abs() <= 0.01 * plain).all().item<bool>())
    keys.refuse("rotate positions by other frequencies (" + name + ") than those of base 10000");
}

HeadsImport take_over(const PublishedFolder& folder, const model::TargetConfig& target) {
  if (!folder.holds(weights_file)) refuse_pickle(folder, pickle, weights_file);
  PublishedConfig keys(folder.config, folder.config_file());
  const int64_t heads = keys.count("hydra_num_heads"), layers = keys.count("hydra_num_layers");
  const json architecture = keys.value("hydra_head_arch");
  if (architecture != "mlp" && architecture != "prefix-mlp")
    keys.refuse("are of the architecture " + architecture.dump().substr(0, 80) +
                ", expected mlp or prefix-mlp");
  const bool prefix = architecture == "prefix-mlp";
  if (!keys.flag("grounded_heads", false))
    keys.refuse(
        "do not read the tokens guessed before (\"grounded_heads\" is not true), which is not supported");
  keys.expect("hidden_state_offset", {0, nullptr}, "the heads read the target's last state");
  keys.ignore({"dropout_rate"});  // of training
  keys.finish();
  HeadsImport taken{
      .kind = "hydra",
      .settings = {{"heads", heads}, {"layers", layers}, {"prefix", prefix}, {"own_heads", true}},
      .weights = folder.path / weights_file,
      .name_of = [prefix](const std::string& own) { return name_of(own, prefix); },
      .embedding_copies = {"input_embed_fn.weight"}};
  taken.notes = untied_blocks(taken.weights, heads, 1, layers, [prefix](int64_t head, int64_t block) {
    return name_of("head" + std::to_string(head) + "." + std::to_string(block) + ".linear.weight", prefix);
  });
  if (!prefix) return taken;
  const auto reader = data::SafetensorsReader::open(taken.weights);
  const std::string frequencies = prefix_layer + std::string(".self_attn.rotary_emb.inv_freq");
  const std::string gate = prefix_layer + std::string(".mlp.gate_proj.weight");
  check_rotation(reader, frequencies, keys);
  taken.others = {frequencies, "prefix_embeding_layer.embed_tokens.weight"};  // the latter is not read
  const std::vector<int64_t>& shape = reader.info(gate).shape;
  const int64_t width = shape.empty() ? 0 : shape[0];
  taken.settings["mlp_width"] = width == target.intermediate ? 0 : width;
  taken.settings["rope_theta"] = own_rope_theta(target, rope_theta);
  return taken;
}

}  // namespace

HeadsFormat hydra_format() {
  return {"hydra",
          "hydra",
          "zankner/Hydra's, Hydra++ included: config.json, hydra_lm_head.safetensors",
          "hydra_lm_head.safetensors (or hydra_lm_head.pt, to be converted)",
          [](const PublishedFolder& folder) { return folder.holds(weights_file) || folder.holds(pickle); },
          take_over,
          nullptr};
}

}  // namespace clover::train
