// Precompiled header of the rooms that compute with tensors (see CMakeLists.txt).  Only third-party headers
// belong here. torch/torch.h and torch/nn/module.h do not: loading their tables costs each file more than
// they save.
#pragma once
#include <ATen/ATen.h>

#if __has_include(<nlohmann/json.hpp>)  // a build of kernels/ alone does without
#include <nlohmann/json.hpp>
#endif
#include <string>
#include <vector>
