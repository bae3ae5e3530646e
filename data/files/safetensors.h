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

/// Reads one `.safetensors` file, or a folder that holds `model.safetensors` or
/// `model.safetensors.index.json` with its shards.  The bytes are memory-mapped.  Opening checks every header
/// (safetensors_header.h lists the checks); InputError for an invalid one.
class SafetensorsReader {
 public:
  static SafetensorsReader open(const std::filesystem::path& file_or_folder);

  std::vector<std::string> names() const;  // sorted
  bool contains(const std::string& name) const;
  const TensorInfo& info(const std::string& name) const;  // InputError when missing

  /// The dtype of the first tensor of fp16, bf16, fp32 or fp64, in the order of file names and then of tensor
  /// names; bfloat16 when there is none.
  at::ScalarType first_float_dtype() const;

  /// A CPU tensor that uses the mapped bytes; they are copied only when they are not aligned to the dtype.
  /// The mapping lives as long as the tensor.  InputError for a missing tensor and a dtype that PyTorch
  /// lacks.
  at::Tensor read(const std::string& name) const;

  /// As `read`; InputError for another shape than `expected_shape`.
  at::Tensor read(const std::string& name, at::IntArrayRef expected_shape) const;

  /// The "__metadata__" of the header.  Where shards have different values, the first shard by name counts.
  const std::map<std::string, std::string>& metadata() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Writes one file through a temporary file, fsync and rename (safetensors_writer.cc).  As in the reference
/// implementation, tensors are ordered by descending element size, then by name, and the header is padded to
/// a multiple of 8 bytes.  Dtypes: bool, u8, i8, i16, i32, i64, fp16, bf16, fp32, fp64.  Tensors may be
/// strided, and on any device.
void write_safetensors(const std::filesystem::path& file, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace clover::data
