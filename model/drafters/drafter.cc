#include "model/drafters/drafter.h"

#include "kernels/gpu/gpu.h"
#include "model/drafters/factory.h"

namespace clover::model {

DraftState DraftState::rows(const at::Tensor& index) const {
  DraftState selected{hidden.index_select(0, index), depth,
                      rounded.defined() ? rounded.index_select(0, index) : rounded};
  for (const at::Tensor& tensor : row_tensors) selected.row_tensors.push_back(tensor.index_select(0, index));
  selected.call_tensors = call_tensors;
  return selected;
}

Drafter::Drafter(const TargetView& target, const at::Tensor& token_map, bool trainable) : Drafter(target) {
  share_lm_head(token_map, trainable);
}

void Drafter::share_lm_head(const at::Tensor& token_map, bool trainable) {
  head_.token_map = token_map.defined() ? token_map.to(device()) : token_map;
  const at::Tensor rows = token_map.defined() ? target_.head->rows(head_.token_map).cpu() : at::Tensor();
  // The whole vocabulary shares the target's own packed head: no second copy of it.
  head_.packed = rows.defined() ? kernels::PackedWeight::pack({rows}).to(device()) : *target_.head;
  head_.outputs = head_.packed.outputs();
  if (trainable) head_.dense = rows.defined() ? rows : target_.head->unpack();
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
  for (const DrafterKind& kind : drafter_table()) kinds.push_back(kind.name);
  return kinds;
}

std::shared_ptr<Drafter> make_drafter(const std::string& kind_name, const nlohmann::json& settings,
                                      const TargetView& target, const at::Tensor& token_map, bool trainable,
                                      uint64_t seed) {
  const DrafterKind& kind = drafter_kind(kind_name);
  const nlohmann::json complete =
      complete_settings(kind_name, kind.settings, settings, target.config->layers);
  auto drafter = kind.make({complete, target, token_map, trainable, seed});
  drafter->settings_ = complete;
  drafter->to(target.head->device());
  return drafter;
}

}  // namespace clover::model
