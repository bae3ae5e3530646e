// Apple's layout of ReDrafter heads (apple/ml-recurrent-drafter, commit bd8586b): config.json of model_type
// "recurrent_drafting_drafter", and model.safetensors.  TensorRT-LLM's converter and Apple's MLX version read
// the same folder.
#include "data/files/error.h"
#include "data/files/files.h"
#include "train/heads/formats/format.h"
#include "train/heads/formats/published_config.h"

namespace clover::train {
namespace {

using nlohmann::json;

constexpr const char* model_type = "recurrent_drafting_drafter";

/// The published name of a tensor; layers: how many residual blocks the heads have.
std::string redrafter_published_name(const std::string& clover_name, int64_t layers) {
  const std::string vocabulary = "lm_head." + std::to_string(layers) + ".";
  const PrefixRenaming prefixes[] = {{"cell.token.", "rnn_w."},
                                     {"cell.state.", "rnn_u."},
                                     {"projection.", "input_proj."},
                                     {"vocabulary.", vocabulary},
                                     {"block", "lm_head."}};
  if (std::string name = rename_prefix(clover_name, prefixes); !name.empty()) return name;
  throw data::InputError("Tensor " + clover_name + " has no name in Apple's layout of ReDrafter.");
}

HeadsImport import_redrafter(const PublishedFolder& folder, const model::TargetConfig& target) {
  PublishedConfig keys(folder.config, folder.config_file());
  const int64_t layers = keys.count("num_draft_layers"), width = keys.count("exit_dim");
  const bool rnn = keys.flag("rnn", false);
  keys.expect("hidden_size", {target.hidden}, "the target's is " + std::to_string(target.hidden));
  keys.expect("vocab_size", {target.vocab}, "the target has " + std::to_string(target.vocab) + " tokens");
  keys.expect("model_type", {model_type}, "it names the class");
  keys.ignore({"num_lookback_tokens"});  // Apple's code does not read it
  keys.finish();
  return {.kind = "redrafter",
          .settings = {{"layers", layers},
                       {"exit_dim", width == 2 * target.hidden ? 0 : width},
                       {"recurrence", rnn ? "linear" : "sum"}},
          .weights = folder.path,
          .published_name = [layers](const std::string& clover_name) {
            return redrafter_published_name(clover_name, layers);
          }};
}

void write_redrafter(const HeadsExport& heads) {
  if (heads.token_map().defined())
    throw data::InputError(
        heads.heads_folder.string() +
        " has a draft vocabulary, and Apple's layout has the whole vocabulary: export them "
        "as clover, or train them with --draft-vocab 0.");
  const json& target = heads.config.at("target");
  const auto layers = heads.drafter().at("layers").get<int64_t>(),
             width = heads.drafter().at("exit_dim").get<int64_t>();
  data::write_safetensors(heads.output_folder / "model.safetensors",
                          rename_tensors(heads.tensors,
                                         [layers](const std::string& clover_name) {
                                           return redrafter_published_name(clover_name, layers);
                                         }),
                          {{"format", "pt"}});
  const json config{{"model_type", model_type},
                    {"architectures", {"Drafter"}},
                    {"vocab_size", target.at("vocab_size")},
                    {"hidden_size", target.at("hidden_size")},
                    {"exit_dim", width == 0 ? 2 * target.at("hidden_size").get<int64_t>() : width},
                    {"num_draft_layers", layers},
                    {"num_lookback_tokens", -1},
                    {"rnn", heads.drafter().at("recurrence") == "linear"}};
  data::write_file_atomically(heads.output_folder / "config.json", config.dump(2) + "\n");
}

}  // namespace

HeadsFormat redrafter_format() {
  return {"redrafter",
          "redrafter",
          "Apple's, and TensorRT-LLM's converter's: config.json, model.safetensors",
          "config.json with \"model_type\": \"recurrent_drafting_drafter\"",
          [](const PublishedFolder& folder) {
            return folder.config.is_object() && folder.config.value("model_type", json()) == model_type;
          },
          import_redrafter,
          write_redrafter};
}

}  // namespace clover::train
