// Precompiled header shared by all rooms (see CMakeLists.txt).  Only third-party headers belong here;
// torch/torch.h does not: its 750 MB of precompiled tables cost each file more than they save.
#pragma once
#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>
