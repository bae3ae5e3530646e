#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>
#include <string>

namespace clover::train {

/// The export formats and the programs that read them, for --help.
std::string list_export_formats();

/// InputError for an unknown format, listing the known ones, and for an output that already exists.
void check_export(const std::string& format, const std::filesystem::path& output);

/// Converts a heads folder to another format; the output appears when it is complete.  InputError as
/// `check_export`, and for heads that the format or `dtype` cannot hold.
///   clover  config.json and model.safetensors in `dtype` (docs/checkpoint-format.md)
///   medusa  config.json and medusa_lm_head.safetensors, the residual blocks under Medusa's names; the
///   target's own head is shared
void export_heads(const std::filesystem::path& heads, const std::string& format,
                  const std::filesystem::path& output, c10::ScalarType dtype);

}  // namespace clover::train
