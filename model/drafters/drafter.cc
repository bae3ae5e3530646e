#include "model/drafters/drafter.h"

#include "data/files/error.h"
#include "kernels/gpu/gpu.h"
#include "model/drafters/factory.h"

namespace clover::model {
namespace {

const DrafterFactory& factory_of(const std::string& kind) {
  std::string known;
  for (const DrafterFactory& factory : drafter_factories()) {
    if (kind == factory.kind) return factory;
    known += (known.empty() ? "" : ", ") + std::string(factory.kind);
  }
  throw data::InputError("Drafter kind \"" + kind + "\" is unknown; expected one of: " + known + ".");
}

}  // namespace

DraftState DraftState::rows(const at::Tensor& index) const {
  DraftState some{hidden.index_select(0, index), depth,
                  rounded.defined() ? rounded.index_select(0, index) : rounded};
  for (const at::Tensor& tensor : carried) some.carried.push_back(tensor.index_select(0, index));
  some.shared = shared;
  return some;
}

Drafter::Drafter(const TargetView& target, const at::Tensor& token_map, bool trainable) : target_(target) {
  const at::Device device = target.head->device();
  head_.token_map = token_map.defined() ? token_map.to(device) : token_map;
  const at::Tensor rows = token_map.defined() ? target.head->rows(head_.token_map).cpu() : at::Tensor();
  // The whole vocabulary shares the target's own packed head: no second copy of it.
  head_.packed = rows.defined() ? kernels::PackedWeight::pack({rows}).to(device) : *target.head;
  head_.outputs = head_.packed.outputs();
  if (trainable) head_.dense = rows.defined() ? rows : target.head->unpack();
}

void Drafter::freeze(at::ScalarType dtype) {
  if (frozen_) thaw();
  pack(dtype);
  // The kernels read packed matrices only, so a GPU's memory need not hold the originals.
  if (!device().is_cpu()) {
    for (at::Tensor& parameter : parameters())
      if (parameter.dim() == 2) parameter.set_data(parameter.detach().cpu());
    // Kernels may read weights before the kernel before them has ended, so an optimizer's step must be over.
    kernels::synchronize(device());
  }
  frozen_ = true;
}

void Drafter::thaw() {
  unpack();
  to(device());
  frozen_ = false;
}

std::vector<std::string> drafter_kinds() {
  std::vector<std::string> kinds;
  for (const DrafterFactory& factory : drafter_factories()) kinds.emplace_back(factory.kind);
  return kinds;
}

nlohmann::json settings_of_kind(const std::string& kind, const nlohmann::json& settings) {
  nlohmann::json own = nlohmann::json::object();
  for (const char* name : factory_of(kind).settings) {
    if (settings.contains(name)) own[name] = settings.at(name);
  }
  return own;
}

std::shared_ptr<Drafter> make_drafter(const std::string& kind, const nlohmann::json& settings,
                                      const TargetView& target, const at::Tensor& token_map, bool trainable,
                                      uint64_t seed) {
  auto drafter = factory_of(kind).make({settings, target, token_map, trainable, seed});
  drafter->to(target.head->device());
  return drafter;
}

}  // namespace clover::model
