// The layout of the authors' Clover-2 heads (XiaoBin1992/clover, commit 9d37214): a Llama-like config.json
// with "clover", and model.safetensors.  Their decoder layers have no biases, RoPE of base 10000 whatever
// config.json and target say, and one gate per attention head.
#include "data/files/error.h"
#include "train/heads/formats/format.h"
#include "train/heads/formats/published_config.h"

namespace clover::train {
namespace {

using nlohmann::json;

constexpr double clover2_rope_theta = 10000;

std::string clover2_published_name(const std::string& clover_name) {
  static constexpr PrefixRenaming prefixes[] = {
      {"first_decoder.state_norm.", "clover_head_mlp_rnn.input_layernorm."},
      {"first_decoder.query.", "clover_head_mlp_rnn.q."},
      {"first_decoder.key.", "clover_head_mlp_rnn.k."},
      {"first_decoder.value.", "clover_head_mlp_rnn.v."},
      {"next_decoder.state_norm.", "clover_head_mlp_rnn2.input_layernorm."},
      {"next_decoder.query.", "clover_head_mlp_rnn2.q."},
      {"next_decoder.key.", "clover_head_mlp_rnn2.k."},
      {"next_decoder.value.", "clover_head_mlp_rnn2.v."},
      {"state_norm.", "clover_norm."},
      {"first_mix.", "clover_head_mlp."},
      {"next_mix.", "clover_head_mlp2."},
      {"norm.", "clover_head_norm."}};
  if (const auto block = parse_numbered(clover_name, "block"))
    return published_layer_name(block->suffix, "layers." + std::to_string(block->number));
  return rename_prefix(clover_name, prefixes);
}

/// InputError unless the decoder layers are what our drafter has: Llama's, with the target's sizes.
void check_layers(PublishedConfig& keys, const model::TargetConfig& target) {
  const auto refuse = [&](const std::string& what) {
    keys.refuse(what + "; train heads of kind clover2 with `fit`");
  };
  if (target.qkv_bias || target.head_norms)
    refuse("have no biases and norms of queries, as this target's layers have");
  if (!keys.value("rope_scaling").is_null()) refuse("scale positions, which is not supported");
  if (const json act = keys.value("hidden_act"); !act.is_null() && act != "silu")
    refuse("have the activation " + act.dump().substr(0, 80) + ", not silu");
  if (const int64_t heads = keys.count("num_attention_heads"); heads != target.heads)
    refuse("have gates of " + std::to_string(heads) + " attention heads, and this target has " +
           std::to_string(target.heads));
  keys.expect("attention_bias", {false, nullptr}, "the published layers have no biases");
  keys.expect("mlp_bias", {false, nullptr}, "the published layers have no biases");
  keys.expect("pretraining_tp", {1, nullptr}, "its matrices are not cut");
  keys.expect("head_dim", {target.head_dim, nullptr}, "its heads are the target's");
  keys.expect("rope_parameters", {nullptr}, "the published layers rotate positions by a base of 10000");
  // Sizes, which are checked by the shapes of tensors; and keys that the published code does not read.
  keys.ignore({"clover", "vocab_size", "hidden_size", "intermediate_size", "num_key_value_heads",
               "num_hidden_layers", "rope_theta", "sliding_window", "max_window_layers",
               "use_sliding_window"});
}

HeadsImport import_clover2(const PublishedFolder& folder, const model::TargetConfig& target) {
  const std::filesystem::path file = folder.config_file();
  const json& clover_config = folder.config.at("clover");
  if (!clover_config.is_object())
    throw data::InputError(file.string() + ": \"clover\" is " + clover_config.dump().substr(0, 80) +
                           ", expected an object with num_heads and num_layers.");
  PublishedConfig keys(folder.config, file), clover(clover_config, file);
  check_layers(keys, target);
  const double norm_eps = norm_eps_setting(target, keys);
  keys.finish();
  json settings{{"heads", clover.count("num_heads")}, {"augmenting_layers", clover.count("num_layers")}};
  clover.ignore({"heads_coefficient", "decay_coefficient"});  // of the loss
  clover.finish();
  settings["norm_eps"] = norm_eps;
  settings["rope_theta"] = rope_theta_setting(target, clover2_rope_theta);
  return {.kind = "clover2",
          .settings = std::move(settings),
          .weights = folder.path,
          .published_name = clover2_published_name,
          .lm_head_copies = {"lm_head.weight", "clover_embed_tokens.weight"}};
}

}  // namespace

HeadsFormat clover2_format() {
  return {"clover2",
          "clover2",
          "XiaoBin1992/clover's: config.json with \"clover\", model.safetensors",
          "config.json with \"clover\"",
          [](const PublishedFolder& folder) {
            return folder.config.is_object() && folder.config.contains("clover");
          },
          import_clover2,
          nullptr};
}

}  // namespace clover::train
