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

/// The rows of a stored vocabulary matrix that `map` names, in its order, or all where it is undefined.  A
/// matrix of `vocab` rows has a row for each token, another one those of `stored_map`; undefined where it has
/// neither size.
at::Tensor rows_for(const at::Tensor& stored, int64_t vocab, const at::Tensor& map,
                    const at::Tensor& stored_map) {
  if (stored.dim() > 0 && stored_map.defined() && stored.size(0) == stored_map.size(0))
    return stored.index_select(0, stored_map.argsort());
  if (stored.dim() > 0 && stored.size(0) == vocab)
    return map.defined() ? stored.index_select(0, map) : stored;
  return {};
}

std::string list_formats(bool written) {
  std::string list;
  for (const HeadsFormat& format : heads_formats())
    if (written ? format.write != nullptr : format.recognises != nullptr)
      list += (list.empty() ? "" : "; ") + format.name + " (" + format.description + "; heads of kind " +
              format.kind + ")";
  return list;
}

}  // namespace

std::string list_published_formats() {
  return list_formats(false);
}
std::string list_written_formats() {
  return list_formats(true);
}

PublishedHeads PublishedHeads::open(const fs::path& folder, const model::TargetConfig& target) {
  PublishedFolder published{folder, nullptr};
  if (published.holds("config.json")) published.config = data::read_json(published.config_file());
  std::string looked_for;
  for (const HeadsFormat& format : heads_formats()) {
    if (format.recognises == nullptr) continue;
    if (format.recognises(published)) return {folder, format, format.take_over(published, target)};
    looked_for += (looked_for.empty() ? "" : "; ") + format.looked_for;
  }
  throw InputError(folder.string() + ": expected published heads, that is one of: " + looked_for +
                   "; found none of them.");
}

at::Tensor PublishedHeads::token_map(const model::TargetConfig& target) const {
  if (!import_.tokens.defined()) return {};
  if (import_.tokens.dim() != 1 || !at::isIntegralType(import_.tokens.scalar_type(), false))
    throw InputError(import_.weights.string() + ": the draft vocabulary must be token ids in one dimension.");
  const at::Tensor map = std::get<0>(import_.tokens.to(at::kLong).sort());
  model::check_token_map(import_.weights.string(), map, target.vocab);
  return map;
}

void PublishedHeads::check_copies(const data::SafetensorsReader& reader, const std::set<std::string>& names,
                                  const kernels::PackedWeight& own_weight, const char* what,
                                  const at::Tensor& map) {
  at::Tensor own;
  double most = 0;
  constexpr int64_t at_once = 4096;  // rows
  for (const std::string& name : names) {
    if (!reader.contains(name)) continue;
    if (!own.defined()) {
      own = own_weight.unpack().cpu();
      most = own.abs().max().item<double>();
    }
    const at::Tensor theirs = reader.read(name);
    const bool cut = map.defined() && theirs.dim() == 2 && theirs.size(0) == map.size(0);
    const at::Tensor ours = cut ? own.index_select(0, map) : own;
    if (theirs.sizes() != ours.sizes()) reader.read(name, ours.sizes());  // InputError that names both shapes
    double largest = 0;
    for (int64_t first = 0; first < ours.size(0); first += at_once) {
      const auto rows = [&](const at::Tensor& x) {
        return x.slice(0, first, first + at_once).to(at::kFloat);
      };
      const double difference = (rows(theirs) - rows(ours)).abs().max().item<double>();
      if (!(difference <= 0.01 * most))
        throw InputError(folder_.string() + ": tensor " + name + " is not the " + what +
                         " of this target; give the target these heads were trained on.");
      largest = std::max(largest, difference);
    }
    char text[160];
    std::snprintf(text, sizeof text, " was left out: it is the target's %s (largest difference %.2g)", what,
                  largest);
    report_.push_back(name + text);
  }
}

void PublishedHeads::read_into(model::Drafter& drafter, const model::Target& target) {
  const at::NoGradGuard no_grad;
  const auto reader = data::SafetensorsReader::open(import_.weights);
  const std::string where = import_.weights.string();
  report_ = import_.notes;
  const at::Tensor stored_map = import_.tokens.defined() ? import_.tokens.to(at::kLong) : at::Tensor();
  const at::Tensor map = drafter.head(0).token_map.defined() ? drafter.head(0).token_map.cpu() : at::Tensor();
  check_copies(reader, import_.head_copies, *target.view().head, "LM head", stored_map);
  check_copies(reader, import_.embedding_copies, *target.view().embedding, "input embedding", {});

  std::set<std::string> expected = import_.head_copies;
  expected.insert(import_.embedding_copies.begin(), import_.embedding_copies.end());
  expected.insert(import_.others.begin(), import_.others.end());
  int64_t taken = 0;
  for (auto& [own, value] : drafter.named_parameters()) {
    const std::string name = import_.name_of(own);
    if (name.empty()) continue;
    expected.insert(name);
    if (!reader.contains(name)) throw InputError(where + ": tensor " + name + " is missing.");
    std::vector<int64_t> shape = value.sizes().vec();
    at::Tensor stored = reader.read(name);
    if (own.starts_with("vocabulary")) {
      stored = rows_for(stored, target.config().vocab, map, stored_map);
      shape[0] = target.config().vocab;
    }
    // An InputError that names both shapes.
    if (!stored.defined() || stored.sizes() != value.sizes()) reader.read(name, shape);
    model::check_weight(where, name, stored);
    value.copy_(stored);
    ++taken;
  }
  for (const std::string& name : reader.names())
    if (!expected.contains(name))
      throw InputError(where + ": tensor " + name + " " + c10::str(at::IntArrayRef(reader.info(name).shape)) +
                       " is not part of these heads; expected only the tensors of kind " + drafter.kind() +
                       ".");
  report_.push_back(std::to_string(taken) + " tensors of " + std::to_string(reader.names().size()) +
                    " were taken over, each finite and of its shape");
}

}  // namespace clover::train
