#pragma once

#include "model/drafters/drafter.h"

namespace clover::model {

/// Freezes a drafter for as long as this lives (Drafter::freeze).  One that is frozen already stays so.
class FrozenFor {
 public:
  FrozenFor(Drafter& drafter, at::ScalarType dtype) : to_thaw_(drafter.frozen() ? nullptr : &drafter) {
    if (to_thaw_) to_thaw_->freeze(dtype);
  }
  ~FrozenFor() {
    if (to_thaw_) to_thaw_->thaw();
  }
  FrozenFor(const FrozenFor&) = delete;
  FrozenFor& operator=(const FrozenFor&) = delete;

 private:
  Drafter* to_thaw_;  // null: it was frozen before
};

}  // namespace clover::model
