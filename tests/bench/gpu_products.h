#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

// What the products of a decoding step take on a GPU, by rows: each by itself, and a layer's one after the
// other.
namespace clover::bench {

struct ProductPlan {
  std::vector<int64_t> rows;
  int rounds = 7;      // of which the median counts
  bool small = false;  // matrices of a few KiB, to try the program with
};

/// Prints a table as it goes.  Bf16 weights of 7B and 8B models, read in turn from more memory than the
/// second-level cache holds, products recorded as a graph.  {"gpu", "copy_bandwidth", "products": [{"shape",
/// "product", "rows", "microseconds", "of_bandwidth", "teraflops"}]}; of_bandwidth: of the weights alone;
/// the product "layer" is all four, as they follow each other in a step.
nlohmann::json measure_gpu_products(at::Device gpu, const ProductPlan& plan);

}  // namespace clover::bench
