// vLLM's layout of Medusa heads (vllm/model_executor/models/medusa.py): config.json of model_type "medusa",
// and safetensors with blocks.{head}.layers.{layer}.{weight,bias}, lm_heads.{head}.weight and maybe
// token_map. Its reader ignores what it does not know: biases unless "medusa_fc_bias" is true, and all but
// the first vocabulary matrix where "original_lm_head" says that the target's LM head is shared.
#include "data/files/error.h"
#include "data/files/files.h"
#include "train/heads/formats/format.h"
#include "train/heads/formats/published_config.h"

namespace clover::train {
namespace {

using data::InputError;
using nlohmann::json;

constexpr const char* stripped = "medusa_heads.";  // a prefix of names that vLLM takes away

std::string name_of(const std::string& own, bool biases) {
  if (const auto vocabulary = numbered(own, "vocabulary"))
    return "lm_heads." + std::to_string(vocabulary->number) + ".weight";
  const auto head = numbered(own, "head");
  if (!head) throw InputError("Tensor " + own + " has no name in vLLM's layout of Medusa heads.");
  const auto layer = numbered(head->rest, "");  // "1.linear.weight"; the first is "linear.weight"
  const std::string part = own.substr(own.rfind('.') + 1);
  if (part == "bias" && !biases) return "";
  return "blocks." + std::to_string(head->number) + ".layers." + std::to_string(layer ? layer->number : 0) +
         "." + part;
}

/// The one key whose name has "num" and `word` in it, as vLLM finds it.
std::string counting_key(const PublishedFolder& folder, const PublishedConfig& keys, const char* word) {
  std::string found;
  for (const auto& [key, value] : folder.config.items()) {
    if (key.find("num") == key.npos || key.find(word) == key.npos) continue;
    if (!found.empty())
      keys.refuse("have \"" + found + "\" and \"" + key +
                  "\" in config.json, and vLLM reads both as the number of " + word + ": leave one");
    found = key;
  }
  return found.empty() ? std::string("num_") + word : found;
}

HeadsImport take_over(const PublishedFolder& folder, const model::TargetConfig& target) {
  PublishedConfig keys(folder.config, folder.config_file());
  const int64_t heads = keys.count(counting_key(folder, keys, "heads"));
  const int64_t layers = keys.count(counting_key(folder, keys, "layers"), 1);
  const bool shared = keys.flag("original_lm_head", false), biases = keys.flag("medusa_fc_bias", false);
  keys.expect("hidden_size", {target.hidden}, "the target's is " + std::to_string(target.hidden));
  keys.expect("vocab_size", {target.vocab}, "the target has " + std::to_string(target.vocab) + " tokens");
  keys.expect("logit_scale", {1, 1.0, nullptr}, "logits are not scaled");
  keys.expect("num_lookahead_tokens", {heads, nullptr}, "vLLM takes it for the number of heads");
  const int64_t kept = keys.count("truncated_vocab_size", target.vocab);
  keys.ignore({"max_paths", "topk", "max_seq_len"});
  keys.finish();
  const std::set<std::string> names = names_of_weights(folder.path);
  std::string prefix;
  bool has_biases = false;
  for (const std::string& name : names) {
    if (name.starts_with(stripped)) prefix = stripped;
    has_biases = has_biases || name.ends_with(".bias");
  }
  if (has_biases && !biases)
    keys.refuse(
        "hold biases, and vLLM leaves them out unless \"medusa_fc_bias\" is true: set it if they were "
        "trained "
        "with them, or remove them");
  HeadsImport taken{.kind = "medusa",
                    .settings = {{"heads", heads}, {"layers", layers}, {"own_heads", !shared}},
                    .weights = folder.path,
                    .name_of = [prefix, biases](const std::string& own) {
                      const std::string name = name_of(own, biases);
                      return name.empty() ? name : prefix + name;
                    }};
  if (kept < target.vocab) {
    const std::string map = prefix + "token_map";
    if (!names.contains(map))
      keys.refuse("have a \"truncated_vocab_size\" of " + std::to_string(kept) + " and no tensor token_map");
    taken.tokens = data::SafetensorsReader::open(folder.path).read(map);
    taken.others = {map};
  }
  if (shared) {
    taken.head_copies.insert(prefix + "lm_head.weight");
    for (int64_t i = 0; i < heads; ++i)
      taken.head_copies.insert(prefix + "lm_heads." + std::to_string(i) + ".weight");
  }
  return taken;
}

void write(const HeadsExport& heads) {
  const bool own_heads = heads.drafter().value("own_heads", false);
  const json& target = heads.config.at("target");
  const at::Tensor map = heads.token_map();
  data::NamedTensors tensors =
      renamed(heads.tensors, [](const std::string& own) { return name_of(own, true); });
  if (!own_heads) {
    const at::Tensor rows = heads.head_rows();
    tensors.emplace_back("lm_heads.0.weight",
                         (map.defined() ? rows.index_select(0, map) : rows).to(heads.dtype));
  }
  if (map.defined()) tensors.emplace_back("token_map", map);
  data::write_safetensors(heads.to / "model.safetensors", tensors, {{"format", "pt"}});
  // No other key may have "num" and "heads" or "layers" in its name: vLLM would take it for one of these.
  const json config{{"model_type", "medusa"},
                    {"architectures", {"MedusaModel"}},
                    {"hidden_size", target.at("hidden_size")},
                    {"vocab_size", target.at("vocab_size")},
                    {"truncated_vocab_size", map.defined() ? json(map.numel()) : target.at("vocab_size")},
                    {"num_heads", heads.drafter().at("heads")},
                    {"num_hidden_layers", heads.drafter().value("layers", int64_t{1})},
                    {"original_lm_head", !own_heads},
                    {"medusa_fc_bias", true}};
  data::write_file_atomically(heads.to / "config.json", config.dump(2) + "\n");
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
          take_over,
          write};
}

}  // namespace clover::train
