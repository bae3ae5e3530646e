#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "data/files/safetensors.h"
#include "kernels/linear/linear.h"
#include "model/target/fingerprint.h"
#include "model/target/target_config.h"

namespace clover::model {

constexpr const char *embedding_name = "model.embed_tokens.weight", *lm_head_name = "lm_head.weight";

/// Where the weights of a target come from: a folder or random numbers.  Tensors have the names of Hugging
/// Face's Llama.  InputError when one is missing, or has another shape or type.
class WeightSource {
 public:
  WeightSource(at::ScalarType dtype, at::Device device) : dtype_(dtype), device_(device) {}
  virtual ~WeightSource() = default;

  /// The tensor `name` [outputs, inputs], in the source's dtype, contiguous, on the CPU.
  at::Tensor matrix(const std::string& name, int64_t outputs, int64_t inputs) {
    return read(name, {outputs, inputs}).to(dtype_).contiguous();
  }
  /// The tensor `name` in fp32, [size], on the source's device.
  at::Tensor vector(const std::string& name, int64_t size) {
    return read(name, {size}).to(at::kFloat).contiguous().to(device_);
  }
  /// `matrix`, packed for inference on the source's device.
  kernels::PackedWeight pack(const at::Tensor& matrix) const {
    return kernels::PackedWeight::pack({matrix}).to(device_);
  }
  at::Device device() const { return device_; }
  at::ScalarType dtype() const { return dtype_; }

 protected:
  /// The floating-point tensor `name`, of that shape, on the CPU.
  virtual at::Tensor read(const std::string& name, at::IntArrayRef shape) = 0;

 private:
  at::ScalarType dtype_;
  at::Device device_;
};

/// The weights of a Hugging Face folder.  Remembers which tensors were read, and adds each one that is read
/// to the fingerprint.
class FolderWeights : public WeightSource {
 public:
  FolderWeights(const std::filesystem::path& folder, at::ScalarType dtype, at::Device device);

  /// Sets config.tied_head as transformers does.  LM head and embedding are tied when config.json says so,
  /// and the folder has only one of the two tensors or both are equal.
  void resolve_tied_head(TargetConfig& config);

  /// InputError when the folder holds a tensor that was not read, other than the rotary frequencies that
  /// older checkpoints store.
  void check_all_read(const std::string& family) const;
  const Fingerprint& fingerprint() const { return fingerprint_; }

 protected:
  at::Tensor read(const std::string& name, at::IntArrayRef shape) override;

 private:
  /// The name that tensor `name` has in the folder: some checkpoints leave out the prefix "model.", and some
  /// put it before "lm_head", too.
  std::string stored_name(const std::string& name) const;
  /// Whether both have the same shape and, in the source's dtype, the same values.
  bool are_equal(const at::Tensor& a, const at::Tensor& b) const;

  std::filesystem::path folder_;
  data::SafetensorsReader reader_;
  std::set<std::string> names_read_;                // as stored in the folder
  std::map<std::string, std::string> replacement_;  // name -> stored name of the tensor to read instead
  bool untied_despite_config_ = false;              // config.json says tied, but the stored LM head differs
  Fingerprint fingerprint_;
};

/// Random weights for measurements.  Norms are 1, biases 0, and products have about the variance of their
/// inputs.  All matrices are cut from one buffer of random numbers: drawing billions would take minutes.
class RandomWeights : public WeightSource {
 public:
  RandomWeights(at::ScalarType dtype, at::Device device);

 protected:
  at::Tensor read(const std::string& name, at::IntArrayRef shape) override;

 private:
  at::Tensor buffer_;  // [2^20] random numbers of variance 1
  int64_t cuts_ = 0;   // number of cuts made from the buffer so far; each begins at another place
};

}  // namespace clover::model
