#include <ATen/Functions.h>

#include <charconv>
#include <system_error>

#include "data/files/error.h"
#include "train/heads/formats/format.h"

namespace clover::train {

// All formats in order: NAME stands for the function `HeadsFormat NAME_format()` in NAME.cc.
#define CLOVER_HEADS_FORMATS(use)                                                                       \
  use(clover2) use(eagle) use(eagle3_speculators) use(eagle3_nvidia) use(eagle3) use(hydra) use(medusa) \
      use(medusa_vllm) use(redrafter) use(redrafter_tensorrt_llm)

#define CLOVER_DECLARE(name) HeadsFormat name##_format();
#define CLOVER_CALL(name) name##_format(),

CLOVER_HEADS_FORMATS(CLOVER_DECLARE)

const std::vector<HeadsFormat>& heads_formats() {
  static const std::vector<HeadsFormat> formats{CLOVER_HEADS_FORMATS(CLOVER_CALL)};
  return formats;
}

bool PublishedFolder::holds(const char* file) const {
  std::error_code ignored;
  return std::filesystem::exists(path / file, ignored);
}

bool PublishedFolder::holds_safetensors() const {
  return holds("model.safetensors") || holds("model.safetensors.index.json");
}

at::Tensor HeadsExport::token_map() const {
  for (const auto& [name, tensor] : tensors)
    if (name == "token_map") return tensor;
  return {};
}

data::NamedTensors rename_tensors(const data::NamedTensors& tensors,
                                  const std::function<std::string(const std::string&)>& published_name) {
  data::NamedTensors renamed;
  for (const auto& [name, tensor] : tensors)
    if (name != "token_map") renamed.emplace_back(published_name(name), tensor);
  return renamed;
}

double rope_theta_setting(const model::TargetConfig& target, double theta) {
  model::TargetConfig unscaled = target;
  unscaled.rope = {};
  unscaled.rope.theta = theta;
  const bool same_rope = model::rope_frequencies(target) == model::rope_frequencies(unscaled) &&
                         !target.rope.depends_on_length() && target.rope.attention_factor == 1;
  return same_rope ? 0 : theta;
}

double norm_eps_setting(const model::TargetConfig& target, PublishedConfig& keys) {
  const nlohmann::json value = keys.value("rms_norm_eps");
  const nlohmann::json eps = value.is_null() ? nlohmann::json(1e-6) : value;
  if (!eps.is_number() || !(eps > 0) || !(eps <= 1e-2))
    keys.refuse("have norms with an rms_norm_eps of " + eps.dump().substr(0, 80) + ", which is none");
  return eps == target.norm_eps ? 0 : eps.get<double>();
}

std::optional<NumberedName> parse_numbered(const std::string& name, const std::string& prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const char* const begin = name.data() + prefix.size();
  const char* const end = name.data() + name.size();
  int64_t number = 0;
  const auto [read, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || number < 0 || number > 1'000'000 || read == end || *read != '.')
    return std::nullopt;
  return NumberedName{number, std::string(read + 1, end)};
}

std::string rename_prefix(std::string_view name, std::span<const PrefixRenaming> renamings) {
  for (const auto& [from, to] : renamings)
    if (name.starts_with(from)) return std::string(to) + std::string(name.substr(from.size()));
  return "";
}

std::string published_layer_name(const std::string& clover_name, const std::string& layer) {
  const std::string part = clover_name.substr(0, clover_name.find('.'));
  if (part == "q_proj" || part == "k_proj" || part == "v_proj" || part == "o_proj")
    return layer + ".self_attn." + clover_name;
  return layer + (part.ends_with("layernorm") ? "." : ".mlp.") + clover_name;
}

void refuse_pickle(const PublishedFolder& folder, const char* pickle, const char* wanted) {
  throw data::InputError(folder.path.string() + " holds " + pickle + ", a pickle: turn it into " + wanted +
                         " with scripts/convert_pt.py first.");
}

std::vector<std::string> note_untied_blocks(const std::filesystem::path& weights, int64_t heads,
                                            int64_t first_block, int64_t blocks,
                                            const std::function<std::string(int64_t, int64_t)>& name) {
  constexpr int64_t max_count = 64;  // more are refused later, when the settings are checked
  if (heads > max_count || blocks > max_count) return {};
  const auto reader = data::SafetensorsReader::open(weights);
  std::vector<std::string> notes;
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t block = first_block + 1; block < blocks; ++block) {
      const std::string first = name(head, first_block), other = name(head, block);
      if (!reader.contains(first) || !reader.contains(other)) continue;
      if (at::equal(reader.read(first), reader.read(other))) continue;
      notes.push_back(
          "tensors " + first + " and " + other +
          " differ, and the published code has one block for both: each is taken as it is stored");
      break;
    }
  }
  return notes;
}

std::set<std::string> tensor_names(const std::filesystem::path& weights) {
  const std::vector<std::string> names = data::SafetensorsReader::open(weights).names();
  return {names.begin(), names.end()};
}

}  // namespace clover::train
