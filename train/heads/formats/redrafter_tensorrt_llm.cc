// The drafter's part of a TensorRT-LLM checkpoint with ReDrafter: the tensors drafter.* in rank0.safetensors,
// and the keys of config.json about the drafter.  A complete checkpoint, as TensorRT-LLM's converter writes
// it, also holds the base model.
#include "data/files/error.h"
#include "data/files/files.h"
#include "train/heads/formats/format.h"

namespace clover::train {
namespace {

using nlohmann::json;

std::string redrafter_tensorrt_llm_published_name(const std::string& clover_name) {
  static constexpr PrefixRenaming prefixes[] = {{"cell.token.", "drafter.rnn_w."},
                                                {"cell.state.", "drafter.rnn_u."},
                                                {"projection.", "drafter.input_proj."},
                                                {"vocabulary.", "drafter.lm_head."},
                                                {"block", "drafter.layers."}};
  if (std::string name = rename_prefix(clover_name, prefixes); !name.empty()) return name;
  throw data::InputError("Tensor " + clover_name + " has no name in TensorRT-LLM's layout of ReDrafter.");
}

void write_redrafter_tensorrt_llm(const HeadsExport& heads) {
  if (heads.token_map().defined())
    throw data::InputError(heads.heads_folder.string() +
                           " has a draft vocabulary, and TensorRT-LLM's ReDrafter has the whole vocabulary: "
                           "train them with --draft-vocab 0.");
  const json& target = heads.config.at("target");
  const auto width = heads.drafter().at("exit_dim").get<int64_t>();
  data::write_safetensors(heads.output_folder / "rank0.safetensors",
                          rename_tensors(heads.tensors, redrafter_tensorrt_llm_published_name),
                          {{"format", "pt"}});
  const json config{
      {"architecture", "ReDrafterForCausalLM"},
      {"vocab_size", target.at("vocab_size")},
      {"redrafter_hidden_size", target.at("hidden_size")},
      {"redrafter_exit_dim", width == 0 ? 2 * target.at("hidden_size").get<int64_t>() : width},
      {"redrafter_num_layers", heads.drafter().at("layers")},
      {"redrafter_is_rnn", heads.drafter().at("recurrence") == "linear"},
      {"redrafter_num_beams", 5},
      {"redrafter_draft_len_per_beam", heads.drafter().at("heads")},  // guesses, without the root
      {"redrafter_greedy_search", true}};
  data::write_file_atomically(heads.output_folder / "config.json", config.dump(2) + "\n");
}

}  // namespace

HeadsFormat redrafter_tensorrt_llm_format() {
  return {"redrafter-tensorrt-llm",
          "redrafter",
          "the drafter's part of a TensorRT-LLM checkpoint: config.json, rank0.safetensors; written only",
          "",
          nullptr,
          nullptr,
          write_redrafter_tensorrt_llm};
}

}  // namespace clover::train
