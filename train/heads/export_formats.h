#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>
#include <string>

namespace clover::train {

/// The formats that `export --format` writes, for --help and messages.
std::string list_export_formats();

/// InputError for an unknown format, listing the known ones, and for an output that already exists.
void check_export(const std::string& format, const std::filesystem::path& output);

/// Converts a heads folder to another format; the output folder appears when it is complete.  Format "clover"
/// is this project's own (docs/checkpoint-format.md), the others are those of train/heads/formats/. `target`:
/// the target's folder, for formats that hold its LM head; "": where it was in training.  Throws as
/// `check_export`, and InputError for heads that the format or `dtype` cannot hold.
void export_heads(const std::filesystem::path& heads, const std::string& format,
                  const std::filesystem::path& output, c10::ScalarType dtype, const std::string& target);

}  // namespace clover::train
