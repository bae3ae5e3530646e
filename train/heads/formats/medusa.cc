// The layout of the authors' Medusa heads (FasterDecoding/Medusa, commit e2a5d20), which TGI and TensorRT-LLM
// read as well: config.json, and medusa_lm_head.safetensors with {head}.{layer}.linear.{weight,bias}.  After
// a head's layers, {head}.{number of layers}.weight is its vocabulary matrix; without it the heads share the
// target's LM head.
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

constexpr const char* medusa_weights_file = "medusa_lm_head.safetensors";
constexpr const char* medusa_pickle = "medusa_lm_head.pt";

/// The published name of a tensor; layers: how many each head has.
std::string medusa_published_name(const std::string& clover_name, int64_t layers) {
  if (const auto vocabulary = parse_numbered(clover_name, "vocabulary"))
    return c10::str(vocabulary->number, ".", layers, ".weight");
  const auto head = parse_numbered(clover_name, "head");
  if (!head) throw InputError("Tensor " + clover_name + " has no name in Medusa's layout.");
  const std::string layer = head->suffix.starts_with("linear.") ? "0." : "";
  return c10::str(head->number, ".", layer, head->suffix);
}

HeadsImport import_medusa(const PublishedFolder& folder, const model::TargetConfig& /*target*/) {
  if (!folder.holds(medusa_weights_file)) refuse_pickle(folder, medusa_pickle, medusa_weights_file);
  PublishedConfig keys(folder.config, folder.config_file());
  const int64_t stated_heads = keys.count("medusa_num_heads"), layers = keys.count("medusa_num_layers");
  keys.ignore({"hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
               "intermediate_size", "medusa_choices"});
  keys.finish();
  const std::filesystem::path weights = folder.path / medusa_weights_file;
  const std::set<std::string> names = tensor_names(weights);
  int64_t heads = 0;
  for (const std::string& name : names)
    if (const auto head = parse_numbered(name, "")) heads = std::max(heads, head->number + 1);
  HeadsImport result{.kind = "medusa",
                     .settings = {{"heads", heads},
                                  {"layers", layers},
                                  {"own_heads", names.contains(c10::str("0.", layers, ".weight"))}},
                     .weights = weights,
                     .published_name = [layers](const std::string& clover_name) {
                       return medusa_published_name(clover_name, layers);
                     }};
  result.notes = note_untied_blocks(weights, heads, 0, layers, [](int64_t head, int64_t block) {
    return std::to_string(head) + "." + std::to_string(block) + ".linear.weight";
  });
  if (heads != stated_heads)
    result.notes.push_back(folder.config_file().string() + ": \"medusa_num_heads\" is " +
                           std::to_string(stated_heads) + ", but the weights are those of " +
                           std::to_string(heads) + " heads, which are taken");
  return result;
}

/// InputError unless all blocks of a head are equal.  Medusa's class makes a head's layers by multiplying a
/// list, so they are one block.
void check_tied(const HeadsExport& heads, int64_t layers) {
  for (const auto& [name, tensor] : heads.tensors) {
    const auto head = parse_numbered(name, "head");
    if (!head || head->suffix.starts_with("linear.")) continue;
    const std::string first_name =
        c10::str("head", head->number, head->suffix.substr(head->suffix.find('.')));
    const auto first_block =
        std::ranges::find(heads.tensors, first_name, [](const auto& named) { return named.first; });
    if (first_block != heads.tensors.end() && at::equal(first_block->second, tensor)) continue;
    throw InputError(
        heads.heads_folder.string() + " has heads of " + std::to_string(layers) +
        " different blocks, and Medusa's own code has one block for all layers of a head: export "
        "them as medusa-vllm.");
  }
}

void write_medusa(const HeadsExport& heads) {
  const auto count = heads.drafter().value("heads", int64_t{0});
  const auto layers = heads.drafter().value("layers", int64_t{1});
  const bool own_heads = heads.drafter().value("own_heads", false);
  check_tied(heads, layers);
  if (own_heads && heads.token_map().defined())
    throw InputError(heads.heads_folder.string() +
                     " has a draft vocabulary and vocabulary matrices of its own, and the format medusa has "
                     "the whole vocabulary: export them as medusa-vllm.");
  // Heads that share the target's LM head lose their draft vocabulary, which only saves time: programs that
  // read this format use the whole LM head.
  const data::NamedTensors tensors = rename_tensors(heads.tensors, [layers](const std::string& clover_name) {
    return medusa_published_name(clover_name, layers);
  });
  const int64_t tensors_per_head = 2 * layers + (own_heads ? 1 : 0);
  if (std::ssize(tensors) != count * tensors_per_head)
    throw InputError((heads.heads_folder / "config.json").string() + ": \"heads\" is " +
                     std::to_string(count) + ", but the weights are those of " +
                     std::to_string(std::ssize(tensors) / tensors_per_head) + ".");
  data::write_safetensors(heads.output_folder / medusa_weights_file, tensors, {{"format", "pt"}});
  if (heads.target_folder.empty())
    std::fprintf(stderr, "config.json: \"base_model_name_or_path\" is empty: name the target there\n");
  const json config{{"medusa_num_heads", count},
                    {"medusa_num_layers", layers},
                    {"base_model_name_or_path", heads.target_folder},  // from which the base model is loaded
                    {"model_type", "medusa"}};
  data::write_file_atomically(heads.output_folder / "config.json", config.dump(2) + "\n");
}

}  // namespace

HeadsFormat medusa_format() {
  return {"medusa",
          "medusa",
          "Medusa's own, TGI's and TensorRT-LLM's: config.json, medusa_lm_head.safetensors",
          "medusa_lm_head.safetensors (or medusa_lm_head.pt, to be converted)",
          [](const PublishedFolder& folder) {
            return folder.holds(medusa_weights_file) || folder.holds(medusa_pickle);
          },
          import_medusa,
          write_medusa};
}

}  // namespace clover::train
