#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace clover::data {

struct TensorInfo {
  at::ScalarType dtype;
  std::vector<int64_t> shape;
};

/// Read-only view of one `.safetensors` file or of a folder that holds `model.safetensors` or
/// `model.safetensors.index.json` with its shards.  Opening checks every header strictly (the format's own
/// rules: no holes, no overlap, no overflow, whole file accounted for) and throws InputError in one sentence;
/// the bytes are memory-mapped.
class SafetensorsReader {
 public:
  static SafetensorsReader open(const std::filesystem::path& file_or_folder);

  std::vector<std::string> names() const;  // sorted
  bool contains(const std::string& name) const;
  const TensorInfo& info(const std::string& name) const;  // InputError when missing

  /// That of the first file's first tensor of floating-point numbers, both by name; bfloat16 where there is
  /// none that PyTorch can compute with.
  at::ScalarType first_float_dtype() const;

  /// The tensor over the mapped bytes (no copy when aligned; the mapping lives as long as the tensor).
  at::Tensor read(const std::string& name) const;

  /// As `read`, but refuses another shape: "<file>: tensor <name> has shape [..], expected [..]".
  at::Tensor read(const std::string& name, at::IntArrayRef expected_shape) const;

  const std::map<std::string, std::string>& metadata() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Writes one file atomically (temporary file beside it, fsync, rename), loadable by the reference
/// implementation: tensors ordered by alignment then name, header padded to 8 bytes.  bool, u8, i8, i16, i32,
/// i64, fp16, bf16, fp32, fp64; any layout or device.
void write_safetensors(const std::filesystem::path& file, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace clover::data
