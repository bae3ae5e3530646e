// vLLM's layout of Medusa heads (vllm/model_executor/models/medusa.py): config.json of model_type "medusa",
// and safetensors with blocks.{head}.layers.{layer}.{weight,bias}, lm_heads.{head}.weight and maybe
// token_map.  vLLM silently ignores biases unless "medusa_fc_bias" is true, and all lm_heads but the first if
// "original_lm_head" is true, which means that the heads share the target's LM head.
#include "data/files/error.h"
#include "data/files/files.h"
#include "train/heads/formats/format.h"
#include "train/heads/formats/published_config.h"

namespace clover::train {
namespace {

using data::InputError;
using nlohmann::json;

constexpr const char* optional_prefix = "medusa_heads.";  // of tensor names; vLLM removes it

/// The published name of a tensor; "" for a bias without `biases`.
std::string medusa_vllm_published_name(const std::string& clover_name, bool biases) {
  if (const auto vocabulary = parse_numbered(clover_name, "vocabulary"))
    return "lm_heads." + std::to_string(vocabulary->number) + ".weight";
  const auto head = parse_numbered(clover_name, "head");
  if (!head) throw InputError("Tensor " + clover_name + " has no name in vLLM's layout of Medusa heads.");
  // Layer 1 has "1.linear.weight", the first layer "linear.weight" without a number.
  const auto layer = parse_numbered(head->suffix, "");
  const std::string part = clover_name.substr(clover_name.rfind('.') + 1);
  if (part == "bias" && !biases) return "";
  return "blocks." + std::to_string(head->number) + ".layers." + std::to_string(layer ? layer->number : 0) +
         "." + part;
}

/// The key with the number of `word`, "heads" or "layers": the only one whose name contains "num" and `word`.
/// vLLM looks for it in this way.
std::string count_key(const PublishedFolder& folder, const PublishedConfig& keys, const char* word) {
  std::string found_key;
  for (const auto& [key, value] : folder.config.items()) {
    if (key.find("num") == key.npos || key.find(word) == key.npos) continue;
    if (!found_key.empty())
      keys.refuse("have \"" + found_key + "\" and \"" + key +
                  "\" in config.json, and vLLM reads both as the number of " + word + ": leave one");
    found_key = key;
  }
  return found_key.empty() ? std::string("num_") + word : found_key;
}

HeadsImport import_medusa_vllm(const PublishedFolder& folder, const model::TargetConfig& target) {
  PublishedConfig keys(folder.config, folder.config_file());
  const int64_t heads = keys.count(count_key(folder, keys, "heads"));
  const int64_t layers = keys.count(count_key(folder, keys, "layers"), 1);
  const bool shared = keys.flag("original_lm_head", false), biases = keys.flag("medusa_fc_bias", false);
  keys.expect("hidden_size", {target.hidden}, "the target's is " + std::to_string(target.hidden));
  keys.expect("vocab_size", {target.vocab}, "the target has " + std::to_string(target.vocab) + " tokens");
  keys.expect("logit_scale", {1, 1.0, nullptr}, "logits are not scaled");
  keys.expect("num_lookahead_tokens", {heads, nullptr}, "vLLM takes it for the number of heads");
  const int64_t draft_vocab = keys.count("truncated_vocab_size", target.vocab);
  keys.ignore({"max_paths", "topk", "max_seq_len"});
  keys.finish();
  const std::set<std::string> names = tensor_names(folder.path);
  std::string prefix;
  bool has_biases = false;
  for (const std::string& name : names) {
    if (name.starts_with(optional_prefix)) prefix = optional_prefix;
    has_biases = has_biases || name.ends_with(".bias");
  }
  if (has_biases && !biases)
    keys.refuse(
        "hold biases, and vLLM leaves them out unless \"medusa_fc_bias\" is true: set it if they were "
        "trained "
        "with them, or remove them");
  HeadsImport result{.kind = "medusa",
                     .settings = {{"heads", heads}, {"layers", layers}, {"own_heads", !shared}},
                     .weights = folder.path,
                     .published_name = [prefix, biases](const std::string& clover_name) {
                       const std::string name = medusa_vllm_published_name(clover_name, biases);
                       return name.empty() ? name : prefix + name;
                     }};
  if (draft_vocab < target.vocab) {
    const std::string map = prefix + "token_map";
    if (!names.contains(map))
      keys.refuse("have a \"truncated_vocab_size\" of " + std::to_string(draft_vocab) +
                  " and no tensor token_map");
    result.token_ids = data::SafetensorsReader::open(folder.path).read(map);
    result.other_tensors = {map};
  }
  if (shared) {
    result.lm_head_copies.insert(prefix + "lm_head.weight");
    for (int64_t i = 0; i < heads; ++i)
      result.lm_head_copies.insert(prefix + "lm_heads." + std::to_string(i) + ".weight");
  }
  return result;
}

void write_medusa_vllm(const HeadsExport& heads) {
  const bool own_heads = heads.drafter().value("own_heads", false);
  const json& target = heads.config.at("target");
  const at::Tensor map = heads.token_map();
  data::NamedTensors tensors = rename_tensors(heads.tensors, [](const std::string& clover_name) {
    return medusa_vllm_published_name(clover_name, true);
  });
  if (!own_heads) {
    const at::Tensor rows = heads.target_lm_head();
    tensors.emplace_back("lm_heads.0.weight",
                         (map.defined() ? rows.index_select(0, map) : rows).to(heads.dtype));
  }
  if (map.defined()) tensors.emplace_back("token_map", map);
  data::write_safetensors(heads.output_folder / "model.safetensors", tensors, {{"format", "pt"}});
  // No other key may contain "num" and "heads" or "layers": vLLM would read it as num_heads or
  // num_hidden_layers.
  const json config{{"model_type", "medusa"},
                    {"architectures", {"MedusaModel"}},
                    {"hidden_size", target.at("hidden_size")},
                    {"vocab_size", target.at("vocab_size")},
                    {"truncated_vocab_size", map.defined() ? json(map.numel()) : target.at("vocab_size")},
                    {"num_heads", heads.drafter().at("heads")},
                    {"num_hidden_layers", heads.drafter().value("layers", int64_t{1})},
                    {"original_lm_head", !own_heads},
                    {"medusa_fc_bias", true}};
  data::write_file_atomically(heads.output_folder / "config.json", config.dump(2) + "\n");
}

}  // namespace

HeadsFormat medusa_vllm_format() {
  return {"medusa-vllm",
          "medusa",
          "vLLM's of Medusa: config.json of model_type medusa, model.safetensors",
          "config.json with \"model_type\": \"medusa\"",
          [](const PublishedFolder& folder) {
            return folder.config.is_object() && folder.config.value("model_type", json()) == "medusa";
          },
          import_medusa_vllm,
          write_medusa_vllm};
}

}  // namespace clover::train
