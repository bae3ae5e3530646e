#pragma once

#include <cstdint>
#include <vector>

namespace clover::model {

/// The tap layers (FeatureTaps::layers) that EAGLE-3 has by default for a target with `layers` layers: 2,
/// layers / 2 and layers - 3, without those that would not ascend.
std::vector<int64_t> default_tap_layers(int64_t layers);

}  // namespace clover::model
