// Precompiled header shared by all rooms (see CMakeLists.txt).  Only third-party headers belong here;
// torch/torch.h does not: its 750 MB of precompiled tables cost each file more than they save.
#pragma once
#include <ATen/ATen.h>
#include <torch/nn/module.h>

#if __has_include(<nlohmann/json.hpp>)  // a build of kernels/ alone does without
#include <nlohmann/json.hpp>
#endif
#include <string>
#include <vector>
