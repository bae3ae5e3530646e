#include "train/heads/published_heads.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstdio>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/safetensors.h"
#include "model/checkpoint/heads_checkpoint.h"

namespace clover::train {
namespace {

namespace fs = std::filesystem;
using data::InputError;
using nlohmann::json;

int64_t count_of(const json& config, const char* key, const fs::path& file) {
  const json value = config.is_object() ? config.value(key, json()) : json();
  constexpr int64_t most = 1'000'000;
  if (!value.is_number_integer() || value < 1 || value > most)
    throw InputError(file.string() + ": \"" + key + "\" is " + value.dump().substr(0, 80) +
                     ", expected an integer from 1 to " + std::to_string(most) + ".");
  return value.get<int64_t>();
}

/// The base of the rotary positions in the published code's layers, whatever config.json and target say.
constexpr double clover2_rope_theta = 10000;

/// Whether the target's layers rotate positions just so.
bool rotates_plainly(const model::TargetConfig& target) {
  model::TargetConfig theirs = target;
  theirs.rope = {};
  theirs.rope.theta = clover2_rope_theta;
  return model::rope_frequencies(target) == model::rope_frequencies(theirs) &&
         !target.rope.depends_on_length() && target.rope.attention_factor == 1;
}

/// InputError for settings of Clover-2 heads that we do not support.  Its layers are Llama's, with one gate
/// per attention head.
void check_clover2(const json& config, const model::TargetConfig& target, const fs::path& file) {
  const auto refuse = [&](const std::string& what) {
    throw InputError(file.string() + ": these heads " + what + "; train heads of kind clover2 with `fit`.");
  };
  if (!config["clover"].is_object())
    throw InputError(file.string() + ": \"clover\" is " + config["clover"].dump().substr(0, 80) +
                     ", expected an object with num_heads and num_layers.");
  if (target.qkv_bias || target.head_norms)
    refuse("have no biases and norms of queries, as this target's layers have");
  if (!config.value("rope_scaling", json()).is_null()) refuse("scale positions, which is not supported");
  if (config.value("hidden_act", json("silu")) != "silu")
    refuse("have the activation " + config["hidden_act"].dump().substr(0, 80) + ", not silu");
  if (count_of(config, "num_attention_heads", file) != target.heads)
    refuse("have gates of " + config["num_attention_heads"].dump() +
           " attention heads, and this target has " + std::to_string(target.heads));
  // The heads for Vicuna have 1e-6 where the target has 1e-5; both are negligible beside the squares of
  // hidden states.
  const json eps = config.value("rms_norm_eps", json(target.norm_eps));
  if (!eps.is_number() || !(std::abs(eps.get<double>()) <= 1e-3))
    refuse("have norms with an rms_norm_eps of " + eps.dump().substr(0, 80) + ", which is none");
  if (eps != target.norm_eps)
    std::fprintf(stderr, "%s: rms_norm_eps is %g, the target's %g is used\n", file.c_str(), eps.get<double>(),
                 target.norm_eps);
}

/// InputError unless stored copies of the LM head equal the target's, up to rounding.
void check_heads(const data::SafetensorsReader& reader, const std::set<std::string>& copies,
                 const model::Target& target, const fs::path& folder) {
  const at::Tensor own = target.view().head->unpack().cpu();
  const double most = own.abs().max().item<double>();
  constexpr int64_t at_once = 4096;  // rows
  for (const std::string& name : copies) {
    if (!reader.contains(name)) continue;
    const at::Tensor theirs = reader.read(name, own.sizes());
    for (int64_t first = 0; first < own.size(0); first += at_once) {
      const auto rows = [&](const at::Tensor& x) {
        return x.slice(0, first, first + at_once).to(at::kFloat);
      };
      if (!((rows(theirs) - rows(own)).abs().max().item<double>() <= 0.01 * most))
        throw InputError(folder.string() + ": tensor " + name +
                         " is not the LM head of this target; give the target these heads were trained on.");
    }
  }
}

using Renaming = std::pair<std::string_view, std::string_view>;  // of a prefix

/// The name after the first renaming whose prefix fits; "" when none fits.
std::string renamed(std::string_view name, std::span<const Renaming> renamings) {
  for (const auto& [from, to] : renamings)
    if (name.starts_with(from)) return std::string(to) + std::string(name.substr(from.size()));
  return "";
}

/// For a name such as "block3.x", with `own` "block" and `theirs` "layers.": "layers.3." followed by x
/// renamed.
std::string renamed_of_one(std::string_view name, std::string_view own, std::string_view theirs,
                           std::span<const Renaming> renamings) {
  const size_t dot = name.find('.');
  if (!name.starts_with(own) || dot == name.npos) return "";
  const std::string_view number = name.substr(own.size(), dot - own.size());
  if (number.empty() || number.find_first_not_of("0123456789") != number.npos) return "";
  const std::string rest = renamed(name.substr(dot + 1), renamings);
  return rest.empty() ? "" : std::string(theirs) + std::string(number) + "." + rest;
}

}  // namespace

std::string published_name(const std::string& kind, const std::string& name) {
  static constexpr Renaming medusa[] = {{"linear.", "0.linear."}};
  static constexpr Renaming layer[] = {{"q_proj.", "self_attn.q_proj."},
                                       {"k_proj.", "self_attn.k_proj."},
                                       {"v_proj.", "self_attn.v_proj."},
                                       {"o_proj.", "self_attn.o_proj."},
                                       {"gate_proj.", "mlp.gate_proj."},
                                       {"up_proj.", "mlp.up_proj."},
                                       {"down_proj.", "mlp.down_proj."},
                                       {"input_layernorm.", "input_layernorm."},
                                       {"post_attention_layernorm.", "post_attention_layernorm."}};
  static constexpr Renaming clover2[] = {
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
  std::string found;
  if (kind == "medusa") found = renamed_of_one(name, "head", "", medusa);
  if (kind == "clover2") found = renamed_of_one(name, "block", "layers.", layer);
  if (kind == "clover2" && found.empty()) found = renamed(name, clover2);
  if (!found.empty()) return found;
  throw InputError("Tensor " + name.substr(0, 200) + " has no name in the published layout of " + kind +
                   " heads.");
}

PublishedHeads PublishedHeads::open(const fs::path& folder, const model::TargetConfig& target) {
  const fs::path file = folder / "config.json";
  const json config = data::read_json(file);
  if (config.is_object() && config.contains("clover")) {
    check_clover2(config, target, file);
    json settings{{"heads", count_of(config["clover"], "num_heads", file)},
                  {"augmenting_layers", count_of(config["clover"], "num_layers", file)}};
    if (!rotates_plainly(target)) settings["rope_theta"] = clover2_rope_theta;
    return {folder, "clover2", std::move(settings)};
  }
  std::error_code ignored;
  if (fs::exists(folder / medusa_file, ignored)) {
    if (const int64_t layers = count_of(config, "medusa_num_layers", file); layers != 1)
      throw InputError(file.string() + ": \"medusa_num_layers\" is " + std::to_string(layers) +
                       ", expected 1.");
    return {folder, "medusa", {{"heads", count_of(config, "medusa_num_heads", file)}}};
  }
  throw InputError(folder.string() + ": expected published heads (config.json with \"clover\", or " +
                   medusa_file + "), found neither.");
}

void PublishedHeads::read_into(model::Drafter& drafter, const model::Target& target) const {
  const fs::path file = kind == "medusa" ? folder / medusa_file : folder;
  const auto reader = data::SafetensorsReader::open(file);
  std::set<std::string> copies;
  if (kind == "clover2") copies = {"lm_head.weight", "clover_embed_tokens.weight"};
  check_heads(reader, copies, target, folder);
  model::read_weights(file.string(), reader, drafter, copies,
                      [this](const std::string& name) { return published_name(kind, name); });
}

}  // namespace clover::train
