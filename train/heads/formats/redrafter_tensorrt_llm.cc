// The drafter's part of a TensorRT-LLM checkpoint of ReDrafter: the tensors "drafter.*" of rank0.safetensors
// and the keys of config.json that are about the drafter.  TensorRT-LLM's converter writes them beside the
// base model's, which are not in this folder.
#include "data/files/error.h"
#include "data/files/files.h"
#include "train/heads/formats/format.h"

namespace clover::train {
namespace {

using nlohmann::json;

std::string name_of(const std::string& own) {
  static constexpr Renaming parts[] = {{"cell.token.", "drafter.rnn_w."},
                                       {"cell.state.", "drafter.rnn_u."},
                                       {"projection.", "drafter.input_proj."},
                                       {"vocabulary.", "drafter.lm_head."},
                                       {"block", "drafter.layers."}};
  if (std::string name = with_prefix_renamed(own, parts); !name.empty()) return name;
  throw data::InputError("Tensor " + own + " has no name in TensorRT-LLM's layout of ReDrafter.");
}

void write(const HeadsExport& heads) {
  if (heads.token_map().defined())
    throw data::InputError(heads.from.string() +
                           " has a draft vocabulary, and TensorRT-LLM's ReDrafter has the whole vocabulary: "
                           "train them with --draft-vocab 0.");
  const json& target = heads.config.at("target");
  const auto width = heads.drafter().at("exit_dim").get<int64_t>();
  data::write_safetensors(heads.to / "rank0.safetensors", renamed(heads.tensors, name_of),
                          {{"format", "pt"}});
  const json config{{"architecture", "ReDrafterForCausalLM"},
                    {"vocab_size", target.at("vocab_size")},
                    {"redrafter_hidden_size", target.at("hidden_size")},
                    {"redrafter_exit_dim", width == 0 ? 2 * target.at("hidden_size").get<int64_t>() : width},
                    {"redrafter_num_layers", heads.drafter().at("layers")},
                    {"redrafter_is_rnn", heads.drafter().at("recurrence") == "linear"},
                    {"redrafter_num_beams", 5},
                    {"redrafter_draft_len_per_beam", heads.drafter().at("heads")},  // without the root
                    {"redrafter_greedy_search", true}};
  data::write_file_atomically(heads.to / "config.json", config.dump(2) + "\n");
}

}  // namespace

HeadsFormat redrafter_tensorrt_llm_format() {
  return {"redrafter-tensorrt-llm",
          "redrafter",
          "the drafter's part of a TensorRT-LLM checkpoint: config.json, rank0.safetensors; written only",
          "",
          nullptr,
          nullptr,
          write};
}

}  // namespace clover::train
