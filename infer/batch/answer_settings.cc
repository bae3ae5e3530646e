#include "infer/batch/answer_settings.h"

#include "data/files/hash.h"
#include "infer/batch/batch_output.h"
#include "infer/requests/line_reader.h"

namespace clover::infer {
namespace {

using nlohmann::json;

/// A hash of the heads in a folder; null without heads.  The path does not suffice, because training may
/// overwrite the folder.
json hash_of_heads(const std::string& folder) {
  if (folder.empty()) return nullptr;
  return summarise_file(folder + "/model.safetensors").hash + summarise_file(folder + "/config.json").hash;
}

}  // namespace

json answer_settings(const DecodeFlags& flags, const std::string& heads, const EngineOptions& engine,
                     const LoadedModel& model) {
  const SamplingParams& sampling = flags.sampling;
  const model::TargetConfig& config = model.target->config();
  json settings = {{"target", model.target->sampled_fingerprint()},  // the only fingerprint of early versions
                   {fingerprint_setting, model.target->fingerprint()},
                   {"end-ids", *engine.end_ids},
                   {"context", config.context},
                   {"norm-eps", config.norm_eps},
                   {"rope", data::hex(data::fnv1a(json(model::rope_frequencies(config)).dump()))},
                   {"tokenizer", model.prompt_encoder->tokenizer().hash()},
                   {"dtype", model::dtype_name(model.target->dtype())},
                   {"template", model.prompt_encoder->template_name()},
                   {"template-hash", model.prompt_encoder->template_hash()},
                   {"verify", flags.verify},
                   {"max-tokens", sampling.max_tokens},
                   {"temperature", sampling.rule.temperature},
                   {"top-p", sampling.rule.top_p},
                   {"top-k", sampling.rule.top_k},
                   {"seed", sampling.seed},
                   {"stop", sampling.stop}};
  if (sampling.rule.min_p > 0) settings["min-p"] = sampling.rule.min_p;
  ControlFields controls = sampling.controls;
  controls.fill_from(model.prompt_encoder->default_controls());
  settings.update(controls.to_json());
  if (!model.target->device().is_cpu())
    settings["device"] = "cuda";    // last bits of logits differ from a CPU's
  if (flags.verify == "typical") {  // lossy: answers depend on which trees are verified
    settings["heads"] = hash_of_heads(heads);
    settings["draft"] = flags.draft;
    settings["budget"] = flags.budget;
    settings["suffix"] = flags.suffix;
    settings["suffix-answers"] = flags.suffix_answers;
    settings["tree-top-p"] = flags.tree_top_p;
    settings["tree-cut"] = flags.tree_cut;
    for (const auto& [name, size] : flags.tree_sizes) {
      if (size.width > 0) settings[name + "-width"] = size.width;
      if (size.depth > 0) settings[name + "-length"] = size.depth;
    }
  }
  return settings;
}

}  // namespace clover::infer
