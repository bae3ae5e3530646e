#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/files/safetensors.h"
#include "model/target/target.h"
#include "train/heads/formats/published_config.h"

namespace clover::train {

/// A folder with the heads that another project published.
struct PublishedFolder {
  std::filesystem::path path;
  nlohmann::json config;  // config.json; null if the folder has none

  std::filesystem::path config_file() const { return path / "config.json"; }
  bool holds(const char* file) const;
  bool holds_safetensors() const;  // model.safetensors, whole or sharded
};

/// How the heads of a published folder become a drafter of this project.  PublishedHeads::read_into loads the
/// weights by it and checks shapes.
struct HeadsImport {
  std::string kind;
  nlohmann::json settings;        // for model::make_drafter
  std::filesystem::path weights;  // a safetensors file, or a folder of such files
  /// The published name of the tensor that our drafter names `clover_name`; "" for a tensor that the
  /// published heads do not have and that keeps its initial value: a bias of zeros, or a copy of the target's
  /// LM head.
  std::function<std::string(const std::string& clover_name)> published_name;
  /// Names of tensors that may be present: copies of the target's LM head and input embedding, either all
  /// rows or those of the draft vocabulary.  They must equal the target's up to rounding.
  std::set<std::string> lm_head_copies = {}, embedding_copies = {};
  /// The draft vocabulary: the token id of each row of the published vocabulary matrices, integers [V'] in
  /// any order; undefined for the whole vocabulary.
  at::Tensor token_ids = {};
  /// Names of tensors that `token_ids` were read from, and of others that may be present and are not used.
  std::set<std::string> other_tensors = {};
  /// Where config.json and weights disagree, and which of them is used, one line each.
  std::vector<std::string> notes = {};
};

/// Heads of this project that are to be written in a published layout.
struct HeadsExport {
  nlohmann::json config;               // config.json of the heads folder
  std::filesystem::path heads_folder;  // where they are, for messages
  data::NamedTensors tensors;          // the weights in `dtype`, and the token map
  c10::ScalarType dtype;               // of the weights to write
  std::string target_folder;           // "" if it is not known
  /// Reads the target's LM head [V, H]; InputError if target_folder is not known or holds another target.
  std::function<at::Tensor()> target_lm_head;
  std::filesystem::path output_folder;  // the folder to write to, which exists

  const nlohmann::json& drafter() const { return config.at("drafter"); }
  at::Tensor token_map() const;  // i64 [V'] or undefined
};

/// A layout in which heads are published.  Each is one file of this folder.
struct HeadsFormat {
  std::string name;         // of --format: "medusa"
  std::string kind;         // the kind of drafter it can hold
  std::string description;  // whose layout it is and which files it has, for --help
  /// How a folder of this format is recognised, for the message that no format matches: "config.json with
  /// ..".
  std::string expected_files;
  /// Whether the folder has this format; null if the format is only written.
  bool (*matches)(const PublishedFolder& folder);
  /// Reads config.json.  InputError for heads that our drafter of this kind does not support: an unknown key,
  /// a flag, a size.
  HeadsImport (*import_heads)(const PublishedFolder& folder, const model::TargetConfig& target);
  /// Writes config.json and weights; null if the format is only read.  InputError for heads that the format
  /// cannot hold.
  void (*write)(const HeadsExport& heads);
};

/// All formats, in the order in which a folder is compared with them.  A new format is a file beside this one
/// that defines `HeadsFormat NAME_format()`, and NAME in the list of formats.cc.
const std::vector<HeadsFormat>& heads_formats();

/// The tensors under their published names, without the token map.
data::NamedTensors rename_tensors(const data::NamedTensors& tensors,
                                  const std::function<std::string(const std::string&)>& published_name);

/// The value of setting "rope_theta" for heads whose layers use RoPE with base `theta` and without scaling:
/// 0, which means as the target, if the target's layers do the same; else `theta`.
double rope_theta_setting(const model::TargetConfig& target, double theta);

/// The value of setting "norm_eps" for heads with this config.json: 0, which means as the target, if the
/// target's norms have the same epsilon; else "rms_norm_eps", or 1e-6 if it is missing, as in Hugging Face's
/// classes. InputError for a value that no norm can have.
double norm_eps_setting(const model::TargetConfig& target, PublishedConfig& keys);

/// A tensor name cut after a prefix: "head3.1.weight" with the prefix "head" is number 3 and suffix
/// "1.weight".
struct NumberedName {
  int64_t number;
  std::string suffix;
};
/// nullopt if `name` does not have the form PREFIX NUMBER . SUFFIX.
std::optional<NumberedName> parse_numbered(const std::string& name, const std::string& prefix);

using PrefixRenaming = std::pair<std::string_view, std::string_view>;  // old prefix, new prefix
/// `name` with its prefix replaced by the first renaming whose old prefix it has; "" if it has none of them.
std::string rename_prefix(std::string_view name, std::span<const PrefixRenaming> renamings);

/// The name that a tensor of our decoder layer has in Hugging Face's Llama, whose layer is named `layer`:
/// "q_proj.weight" becomes LAYER.self_attn.q_proj.weight.
std::string published_layer_name(const std::string& clover_name, const std::string& layer);

/// InputError: the weights are the file `pickle`, which the user must convert to the safetensors file
/// `wanted`.
[[noreturn]] void refuse_pickle(const PublishedFolder& folder, const char* pickle, const char* wanted);

/// A note for each head whose blocks first_block .. blocks-1, the tensors name(head, block), differ.  The
/// published code has one block where these are stored, so that they should be equal.
std::vector<std::string> note_untied_blocks(const std::filesystem::path& weights, int64_t heads,
                                            int64_t first_block, int64_t blocks,
                                            const std::function<std::string(int64_t, int64_t)>& name);

/// The names of the tensors in a safetensors file or a folder of such files.
std::set<std::string> tensor_names(const std::filesystem::path& weights);

}  // namespace clover::train
