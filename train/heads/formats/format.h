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

/// A folder of heads that somebody published.
struct PublishedFolder {
  std::filesystem::path path;
  nlohmann::json config;  // config.json; null where there is none

  std::filesystem::path config_file() const { return path / "config.json"; }
  bool holds(const char* file) const;
  bool holds_safetensors() const;  // model.safetensors, whole or sharded
};

/// How the heads of a published folder become ours.  PublishedHeads::read_into checks the shapes of tensors.
struct HeadsImport {
  std::string kind;
  nlohmann::json settings;        // for make_drafter
  std::filesystem::path weights;  // a safetensors file, or a folder of such files
  /// The published name of tensor `own` of our heads; "" for one that these heads have not and that stays as
  /// it is in fresh heads: a bias that is zero, a copy of the target's LM head.
  std::function<std::string(const std::string& own)> name_of;
  /// Tensors that may be there: copies of the target's LM head and of its input embedding, which must equal
  /// the target's own up to rounding, whole or the rows of the draft vocabulary.
  std::set<std::string> head_copies = {}, embedding_copies = {};
  /// The token of each row of the vocabulary matrices, i64 [V'] in any order; undefined for the whole
  /// vocabulary.
  at::Tensor tokens = {};
  /// Tensors that `tokens` come from, and others that may be there and change nothing.
  std::set<std::string> others = {};
  /// One line each: what config.json and weights disagree in, and what was taken.
  std::vector<std::string> notes = {};
};

/// Heads of ours that are written in a published layout.
struct HeadsExport {
  nlohmann::json config;                  // config.json of the heads folder
  std::filesystem::path from;             // the heads folder, for messages
  data::NamedTensors tensors;             // its weights in the wanted dtype, the token map among them
  c10::ScalarType dtype;                  // of the weights to write
  std::string target_folder;              // "" where it is not known
  std::function<at::Tensor()> head_rows;  // the target's LM head [V, H]; InputError where no target is known
  std::filesystem::path to;               // the folder to write, which exists

  const nlohmann::json& drafter() const { return config.at("drafter"); }
  at::Tensor token_map() const;  // i64 [V'] or undefined
};

/// A layout in which heads are published: one file of this folder.
struct HeadsFormat {
  std::string name;         // of --format: "medusa"
  std::string kind;         // of the heads it can hold
  std::string description;  // whose layout it is and which files it has, for --help
  std::string
      looked_for;  // what tells it apart, for the message that nothing was found: "config.json with .."
  bool (*recognises)(const PublishedFolder& folder);  // null where the format is only written
  /// InputError for heads that our drafter of that kind cannot be: a key that is not understood, a flag, a
  /// size.
  HeadsImport (*take_over)(const PublishedFolder& folder, const model::TargetConfig& target);
  /// Writes config.json and weights; null where the format is not written.  InputError for heads that the
  /// format cannot hold.
  void (*write)(const HeadsExport& heads);
};

/// The table of formats, in the order in which a folder is compared with them.  A new format is a file beside
/// this one, which defines its function, and the function's name in formats.cc.
const std::vector<HeadsFormat>& heads_formats();

/// The tensors with their names replaced.
data::NamedTensors renamed(const data::NamedTensors& tensors,
                           const std::function<std::string(const std::string&)>& name_of);

/// The base for setting "rope_theta" of heads whose layers rotate positions plainly by `theta`: 0 where the
/// target's layers rotate just so.
double own_rope_theta(const model::TargetConfig& target, double theta);

/// The epsilon for setting "norm_eps" of heads with this config.json ("rms_norm_eps", 1e-6 where it is
/// missing, as in Hugging Face's classes): 0 where the target's norms have the same.  InputError for values
/// that no norm can have.
double own_norm_eps(const model::TargetConfig& target, PublishedConfig& keys);

/// `x` of "head3.1.weight" and the like: the number behind `prefix`, and what follows the dot behind it;
/// nothing where the name has another form.
struct Numbered {
  int64_t number;
  std::string rest;
};
std::optional<Numbered> numbered(const std::string& name, const std::string& prefix);

using Renaming = std::pair<std::string_view, std::string_view>;  // of a prefix
/// The name after the first renaming whose prefix fits; "" when none fits.
std::string with_prefix_renamed(std::string_view name, std::span<const Renaming> renamings);

/// The name in a Llama-like layer called `layer` of a tensor of our decoder layer: "q_proj.weight" becomes
/// LAYER + ".self_attn.q_proj.weight".
std::string decoder_layer_name(const std::string& own, const std::string& layer);

/// InputError: the weights are a pickle, which is to be turned into the safetensors file `wanted`.
[[noreturn]] void refuse_pickle(const PublishedFolder& folder, const char* pickle, const char* wanted);

/// One line for each head whose further blocks, stored as `name(head, block)`, are not all alike, where the
/// published code makes one block of them.
std::vector<std::string> untied_blocks(const std::filesystem::path& weights, int64_t heads,
                                       int64_t first_block, int64_t blocks,
                                       const std::function<std::string(int64_t, int64_t)>& name);

/// The names of the tensors in a safetensors file or a folder of such files.
std::set<std::string> names_of_weights(const std::filesystem::path& weights);

}  // namespace clover::train
