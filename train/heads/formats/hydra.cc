// The layout of Hydra heads (zankner/Hydra, commit 3f39fbd): config.json, and the state dict of the head
// module in hydra_lm_head.pt, which must be converted to hydra_lm_head.safetensors.  Hydra++'s prefix layer
// has RoPE of base 10000 whatever the target has.
#include <ATen/ATen.h>

#include <cmath>

#include "data/files/error.h"
#include "train/heads/formats/format.h"
#include "train/heads/formats/published_config.h"

namespace clover::train {
namespace {

using data::InputError;
using nlohmann::json;

constexpr const char* hydra_weights_file = "hydra_lm_head.safetensors";
constexpr const char* hydra_pickle = "hydra_lm_head.pt";
constexpr const char* prefix_layer = "prefix_embeding_layer.layers.0";  // spelled so
constexpr double hydra_rope_theta = 10000;

/// The published name of a tensor; prefix: whether the heads have a prefix layer.  Then a dropout module,
/// which has no weights, is before each block and vocabulary matrix, and counts in the numbers of modules.
std::string hydra_published_name(const std::string& clover_name, bool prefix) {
  if (clover_name == "prefix_norm.weight") return "prefix_embeding_layer.norm.weight";
  constexpr std::string_view layer_prefix = "prefix.";
  if (clover_name.starts_with(layer_prefix))
    return published_layer_name(clover_name.substr(layer_prefix.size()), prefix_layer);
  if (const auto vocabulary = parse_numbered(clover_name, "vocabulary"))
    return "hydra_lm_head." + std::to_string(vocabulary->number) + (prefix ? ".1." : ".") +
           vocabulary->suffix;
  const auto head = parse_numbered(clover_name, "head");
  if (!head) throw InputError("Tensor " + clover_name + " has no name in Hydra's layout.");
  // Block 2 has "2.linear.weight", the first block "linear.weight" without a number.
  const auto numbered_block = parse_numbered(head->suffix, "");
  std::string part = numbered_block ? numbered_block->suffix : head->suffix;
  if (part.starts_with("residual.")) part = "res_connection" + part.substr(part.find('.'));
  const int64_t block = numbered_block ? numbered_block->number : 0;
  return "hydra_mlp." + std::to_string(head->number) + "." + std::to_string(prefix ? 2 * block + 1 : block) +
         "." + part;
}

/// InputError when the stored inverse frequencies of the prefix layer are not those of base 10000.
void check_rotation(const data::SafetensorsReader& reader, const std::string& name,
                    const PublishedConfig& keys) {
  if (!reader.contains(name)) return;
  const at::Tensor stored = reader.read(name).to(at::kDouble).flatten();
  const at::Tensor pair = at::arange(stored.numel(), at::kDouble);
  const at::Tensor expected =
      (pair * (-std::log(hydra_rope_theta) / static_cast<double>(stored.numel()))).exp();
  if (!((stored - expected).abs() <= 0.01 * expected).all().item<bool>())
    keys.refuse("rotate positions by other frequencies (" + name + ") than those of base 10000");
}

HeadsImport import_hydra(const PublishedFolder& folder, const model::TargetConfig& target) {
  if (!folder.holds(hydra_weights_file)) refuse_pickle(folder, hydra_pickle, hydra_weights_file);
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
  keys.ignore({"dropout_rate"});  // training only
  keys.finish();
  HeadsImport result{
      .kind = "hydra",
      .settings = {{"heads", heads}, {"layers", layers}, {"prefix", prefix}, {"own_heads", true}},
      .weights = folder.path / hydra_weights_file,
      .published_name =
          [prefix](const std::string& clover_name) { return hydra_published_name(clover_name, prefix); },
      .embedding_copies = {"input_embed_fn.weight"}};
  result.notes = note_untied_blocks(result.weights, heads, 1, layers, [prefix](int64_t head, int64_t block) {
    return hydra_published_name(
        "head" + std::to_string(head) + "." + std::to_string(block) + ".linear.weight", prefix);
  });
  if (!prefix) return result;
  const auto reader = data::SafetensorsReader::open(result.weights);
  const std::string frequencies = prefix_layer + std::string(".self_attn.rotary_emb.inv_freq");
  const std::string gate = prefix_layer + std::string(".mlp.gate_proj.weight");
  check_rotation(reader, frequencies, keys);
  result.other_tensors = {frequencies, "prefix_embeding_layer.embed_tokens.weight"};  // the latter is unused
  const std::vector<int64_t>& shape = reader.info(gate).shape;
  const int64_t width = shape.empty() ? 0 : shape[0];
  result.settings["mlp_width"] = width == target.intermediate ? 0 : width;
  result.settings["rope_theta"] = rope_theta_setting(target, hydra_rope_theta);
  return result;
}

}  // namespace

HeadsFormat hydra_format() {
  return {"hydra",
          "hydra",
          "zankner/Hydra's, Hydra++ included: config.json, hydra_lm_head.safetensors",
          "hydra_lm_head.safetensors (or hydra_lm_head.pt, to be converted)",
          [](const PublishedFolder& folder) {
            return folder.holds(hydra_weights_file) || folder.holds(hydra_pickle);
          },
          import_hydra,
          nullptr};
}

}  // namespace clover::train
