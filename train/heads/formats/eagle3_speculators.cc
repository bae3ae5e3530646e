// The layout of EAGLE-3 heads of vLLM's speculators (commit c05b95b): config.json with
// "speculators_model_type", and the decoder layer's keys in "transformer_layer_config"; the decoder layer is
// named layers.0.
#include <ATen/ATen.h>

#include "data/files/error.h"
#include "data/files/files.h"
#include "model/drafters/kinds/eagle3.h"
#include "train/heads/formats/eagle_layout.h"

namespace clover::train {
namespace {

using nlohmann::json;

HeadsImport import_eagle3_speculators(const PublishedFolder& folder, const model::TargetConfig& target) {
  require_safetensors(folder);
  PublishedConfig keys(folder.config, folder.config_file());
  keys.expect("speculators_model_type", {"eagle3"}, "no other of its heads are supported");
  const json layer_config = keys.value("transformer_layer_config");
  PublishedConfig layer(layer_config, folder.config_file());
  json settings = eagle_layer_settings(layer, target);
  layer.finish();
  keys.expect("target_hidden_size", {target.hidden, nullptr}, "its layers read the target's streams");
  for (const char* key : {"fc_norm", "norm_before_fc"})
    keys.expect(key, {false, nullptr}, "no norm stands before fc");
  keys.expect("norm_output", {false, nullptr}, "the next row reads the state before its norm");
  keys.expect("embed_requires_grad", {false, nullptr}, "the embedding is the target's");
  const json taps = keys.value("eagle_aux_hidden_state_layer_ids");  // in the form of setting tap_layers
  const bool norm_before_residual = keys.flag("norm_before_residual", false);
  keys.ignore({"draft_vocab_size", "speculators_config", "speculators_version"});
  keys.finish();
  settings["tap_layers"] = taps.is_null() ? json::array() : taps;
  settings["norm_before_residual"] = norm_before_residual;
  return eagle3_import(folder, target, std::move(settings), "layers.0");
}

/// The layers that the heads tap; by default 2, N / 2 and N - 3 of N.
json tapped_layers(const HeadsExport& heads, int64_t layers) {
  const json taps = heads.drafter().value("tap_layers", json::array());
  return taps.empty() ? json(model::default_tap_layers(layers)) : taps;
}

void write_eagle3_speculators(const HeadsExport& heads) {
  const json& target = heads.config.at("target");
  const json& target_config = target.at("config");
  const auto vocab = target.at("vocab_size").get<int64_t>(),
             layers = target.at("num_hidden_layers").get<int64_t>();
  const json rope = target_config.value("rope", json::object());
  const auto theta = heads.drafter().value("rope_theta", 0.0);
  if (theta == 0 && rope.value("type", json("default")) != "default")
    throw data::InputError(heads.heads_folder.string() +
                           " rotate positions as their target, by scaled RoPE, which this format cannot "
                           "express: export them as clover, or train them with --rope-theta.");
  const auto width = heads.drafter().value("mlp_width", int64_t{0});
  const auto eps = heads.drafter().value("norm_eps", 0.0);
  const at::Tensor map = heads.token_map();
  data::NamedTensors tensors = rename_tensors(heads.tensors, [](const std::string& clover_name) {
    return eagle3_published_name(clover_name, "layers.0");
  });
  if (map.defined()) {
    tensors.emplace_back("d2t", map - at::arange(map.numel(), at::kLong));
    tensors.emplace_back("t2d", at::zeros({vocab}, at::kBool).index_fill_(0, map, true));
  }
  data::write_safetensors(heads.output_folder / "model.safetensors", tensors, {{"format", "pt"}});
  const json layer{{"model_type", "llama"},
                   {"vocab_size", vocab},
                   {"hidden_size", target.at("hidden_size")},
                   {"intermediate_size", width > 0 ? json(width) : target_config.at("intermediate_size")},
                   {"num_attention_heads", target_config.at("num_heads")},
                   {"num_key_value_heads", target_config.at("num_key_value_heads")},
                   {"head_dim", target_config.at("head_dim")},
                   {"rms_norm_eps", eps > 0 ? json(eps) : target_config.at("rms_norm_eps")},
                   {"num_hidden_layers", 1},
                   {"hidden_act", "silu"},
                   {"attention_bias", false},
                   {"mlp_bias", false},
                   {"rope_parameters",
                    {{"rope_type", "default"}, {"rope_theta", theta > 0 ? json(theta) : rope.at("theta")}}}};
  const json proposal{{"proposal_type", "greedy"},
                      {"speculative_tokens", heads.drafter().at("heads")},
                      {"verifier_accept_k", 1},
                      {"accept_tolerance", 0.0}};
  const json config{
      {"architectures", {"Eagle3DraftModel"}},
      {"speculators_model_type", "eagle3"},
      {"speculators_version", "0.3.0"},
      {"speculators_config",
       {{"algorithm", "eagle3"},
        {"default_proposal_method", "greedy"},
        {"proposal_methods", json::array({proposal})},
        {"verifier", {{"name_or_path", heads.target_folder}, {"architectures", {"LlamaForCausalLM"}}}}}},
      {"draft_vocab_size", map.defined() ? map.numel() : vocab},
      {"eagle_aux_hidden_state_layer_ids", tapped_layers(heads, layers)},
      // Programs that read this format have different defaults, so it is always written.
      {"norm_before_residual", heads.drafter().value("norm_before_residual", false)},
      {"norm_before_fc", false},
      {"fc_norm", false},
      {"norm_output", false},
      {"embed_requires_grad", false},
      {"target_hidden_size", nullptr},
      {"tie_word_embeddings", false},
      {"transformer_layer_config", layer}};
  data::write_file_atomically(heads.output_folder / "config.json", config.dump(2) + "\n");
}

}  // namespace

HeadsFormat eagle3_speculators_format() {
  return {"eagle3-speculators",
          "eagle3",
          "vLLM's speculators' of EAGLE-3: config.json, model.safetensors",
          "config.json with \"speculators_model_type\"",
          [](const PublishedFolder& folder) {
            return folder.config.is_object() && folder.config.contains("speculators_model_type");
          },
          import_eagle3_speculators,
          write_eagle3_speculators};
}

}  // namespace clover::train
