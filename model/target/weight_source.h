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

constexpr const char *embedding_name = "model.embed_tokens.weight", *head_name = "lm_head.weight";

/// Where the weights of a target come from: a folder, or random numbers.  Names are those of Hugging Face's
/// Llama.  InputError when a tensor is missing, or has another shape or type.
class WeightSource {
 public:
  WeightSource(at::ScalarType dtype, at::Device device) : dtype_(dtype), device_(device) {}
  virtual ~WeightSource() = default;

  /// [outputs, inputs] in the source's dtype, on the CPU.
  at::Tensor matrix(const std::string& name, int64_t outputs, int64_t inputs) {
    return read(name, {outputs, inputs}).to(dtype_).contiguous();
  }
  /// fp32 [size] on the source's device.
  at::Tensor vector(const std::string& name, int64_t size) {
    return read(name, {size}).to(at::kFloat).contiguous().to(device_);
  }
  /// A matrix packed for inference, on the source's device.
  kernels::PackedWeight pack(const at::Tensor& matrix) const {
    return kernels::PackedWeight::pack({matrix}).to(device_);
  }
  at::Device device() const { return device_; }
  at::ScalarType dtype() const { return dtype_; }

 protected:
  /// A floating-point tensor of that shape, on the CPU.
  virtual at::Tensor read(const std::string& name, at::IntArrayRef shape) = 0;

 private:
  at::ScalarType dtype_;
  at::Device device_;
};

/// Reads tensors of a folder by name.  Remembers which names were read, and adds each tensor to the
/// fingerprint in the order of reading.
class FolderWeights : public WeightSource {
 public:
  FolderWeights(const std::filesystem::path& folder, at::ScalarType dtype, at::Device device);

  /// Sets config.tied_head as transformers does: tied when config.json says so and the folder holds only one
  /// of embedding and head, or two equal ones.
  void resolve_tied_head(TargetConfig& config);

  /// InputError when the folder holds a tensor that was not read, other than the rotary frequencies that
  /// older checkpoints store.
  void check_all_read(const std::string& family) const;
  const Fingerprint& fingerprint() const { return fingerprint_; }

 protected:
  at::Tensor read(const std::string& name, at::IntArrayRef shape) override;

 private:
  /// The name in the folder: some checkpoints leave out the prefix "model.", some put it before the head,
  /// too.
  std::string stored_name(const std::string& name) const;
  bool same(const at::Tensor& one, const at::Tensor& other) const;

  std::filesystem::path folder_;
  data::SafetensorsReader reader_;
  std::set<std::string> read_;                    // stored names
  std::map<std::string, std::string> stored_as_;  // by name, where another tensor takes its place
  bool untied_despite_config_ = false;            // config.json says tied, but the stored head differs
  Fingerprint fingerprint_;
};

/// Random weights for measurements: norms are 1, biases 0, and matrices keep the scale of their input.  Each
/// matrix is cut from one buffer of random numbers, because drawing billions would take minutes.
class RandomWeights : public WeightSource {
 public:
  RandomWeights(at::ScalarType dtype, at::Device device);

 protected:
  at::Tensor read(const std::string& name, at::IntArrayRef shape) override;

 private:
  at::Tensor buffer_;
  int64_t cuts_ = 0;  // each cut begins at another place of the buffer
};

}  // namespace clover::model
