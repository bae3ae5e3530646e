#include "train/heads/published_heads.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "data/files/error.h"
#include "data/files/files.h"
#include "data/files/safetensors.h"
#include "model/checkpoint/heads_checkpoint.h"

namespace clover::train {
namespace {

namespace fs = std::filesystem;
using data::InputError;
using nlohmann::json;

/// The rows of a stored vocabulary matrix in the order of the drafter's token map, i64 [V'] ascending, or all
/// rows without a map.  `stored` has either V rows or a row for each of `stored_ids` i64 [V'], which are in
/// any order; the result is undefined if it has neither number.
at::Tensor draft_vocabulary_rows(const at::Tensor& stored, int64_t vocab, const at::Tensor& token_map,
                                 const at::Tensor& stored_ids) {
  if (stored.dim() > 0 && stored_ids.defined() && stored.size(0) == stored_ids.size(0))
    return stored.index_select(0, stored_ids.argsort());
  if (stored.dim() > 0 && stored.size(0) == vocab)
    return token_map.defined() ? stored.index_select(0, token_map) : stored;
  return {};
}

/// The formats that are written, or those that are read.
std::string list_formats(bool written) {
  std::string list;
  for (const HeadsFormat& format : heads_formats())
    if (written ? format.write != nullptr : format.matches != nullptr)
      list += (list.empty() ? "" : "; ") + format.name + " (" + format.description + "; heads of kind " +
              format.kind + ")";
  return list;
}

}  // namespace

std::string list_published_formats() {
  return list_formats(false);
}
std::string list_writable_formats() {
  return list_formats(true);
}

PublishedHeads PublishedHeads::open(const fs::path& folder, const model::TargetConfig& target) {
  PublishedFolder published{folder, nullptr};
  if (published.holds("config.json")) published.config = data::read_json(published.config_file());
  std::string expected_files;
  for (const HeadsFormat& format : heads_formats()) {
    if (format.matches == nullptr) continue;
    if (format.matches(published)) return {folder, format, format.import_heads(published, target)};
    expected_files += (expected_files.empty() ? "" : "; ") + format.expected_files;
  }
  throw InputError(folder.string() + ": expected published heads, that is one of: " + expected_files +
                   "; found none of them.");
}

at::Tensor PublishedHeads::token_map(const model::TargetConfig& target) const {
  if (!import_.token_ids.defined()) return {};
  if (import_.token_ids.dim() != 1 || !at::isIntegralType(import_.token_ids.scalar_type(), false))
    throw InputError(import_.weights.string() + ": the draft vocabulary must be token ids in one dimension.");
  const at::Tensor map = std::get<0>(import_.token_ids.to(at::kLong).sort());
  model::check_token_map(import_.weights.string(), map, target.vocab);
  return map;
}

void PublishedHeads::check_copies(const data::SafetensorsReader& reader, const std::set<std::string>& names,
                                  const kernels::PackedWeight& weight, const char* what,
                                  const at::Tensor& token_ids) {
  at::Tensor unpacked;
  double largest_weight = 0;  // its magnitude
  constexpr int64_t rows_at_once = 4096;
  for (const std::string& name : names) {
    if (!reader.contains(name)) continue;
    if (!unpacked.defined()) {
      unpacked = weight.unpack().cpu();
      largest_weight = unpacked.abs().max().item<double>();
    }
    const at::Tensor stored = reader.read(name);
    const bool of_draft_vocabulary =
        token_ids.defined() && stored.dim() == 2 && stored.size(0) == token_ids.size(0);
    const at::Tensor expected = of_draft_vocabulary ? unpacked.index_select(0, token_ids) : unpacked;
    if (stored.sizes() != expected.sizes())
      reader.read(name, expected.sizes());  // InputError that names both shapes
    double largest_difference = 0;
    for (int64_t first = 0; first < expected.size(0); first += rows_at_once) {
      const auto rows = [&](const at::Tensor& x) {
        return x.slice(0, first, first + rows_at_once).to(at::kFloat);
      };
      const double difference = (rows(stored) - rows(expected)).abs().max().item<double>();
      if (!(difference <= 0.01 * largest_weight))
        throw InputError(folder_.string() + ": tensor " + name + " is not the " + what +
                         " of this target; give the target these heads were trained on.");
      largest_difference = std::max(largest_difference, difference);
    }
    char text[160];
    std::snprintf(text, sizeof text, " was left out: it is the target's %s (largest difference %.2g)", what,
                  largest_difference);
    report_.push_back(name + text);
  }
}

void PublishedHeads::read_into(model::Drafter& drafter, const model::Target& target) {
  const at::NoGradGuard no_grad;
  const auto reader = data::SafetensorsReader::open(import_.weights);
  const std::string where = import_.weights.string();
  report_ = import_.notes;
  const at::Tensor stored_ids = import_.token_ids.defined() ? import_.token_ids.to(at::kLong) : at::Tensor();
  const at::Tensor token_map =
      drafter.head(0).token_map.defined() ? drafter.head(0).token_map.cpu() : at::Tensor();
  check_copies(reader, import_.lm_head_copies, *target.view().head, "LM head", stored_ids);
  check_copies(reader, import_.embedding_copies, *target.view().embedding, "input embedding", {});

  std::set<std::string> expected = import_.lm_head_copies;
  expected.insert(import_.embedding_copies.begin(), import_.embedding_copies.end());
  expected.insert(import_.other_tensors.begin(), import_.other_tensors.end());
  int64_t loaded = 0;
  for (auto& [clover_name, value] : drafter.named_parameters()) {
    const std::string name = import_.published_name(clover_name);
    if (name.empty()) continue;
    expected.insert(name);
    if (!reader.contains(name)) throw InputError(where + ": tensor " + name + " is missing.");
    std::vector<int64_t> shape = value.sizes().vec();
    at::Tensor stored = reader.read(name);
    if (clover_name.starts_with("vocabulary")) {
      stored = draft_vocabulary_rows(stored, target.config().vocab, token_map, stored_ids);
      shape[0] = target.config().vocab;
    }
    // An InputError that names both shapes.
    if (!stored.defined() || stored.sizes() != value.sizes()) reader.read(name, shape);
    model::check_weight(where, name, stored);
    value.copy_(stored);
    ++loaded;
  }
  for (const std::string& name : reader.names())
    if (!expected.contains(name))
      throw InputError(where + ": tensor " + name + " " + c10::str(at::IntArrayRef(reader.info(name).shape)) +
                       " is not part of these heads; expected only the tensors of kind " + drafter.kind() +
                       ".");
  report_.push_back(std::to_string(loaded) + " tensors of " + std::to_string(reader.names().size()) +
                    " were taken over, each finite and of its shape");
}

}  // namespace clover::train
