#pragma once

#include <c10/core/ScalarType.h>

#include <filesystem>
#include <string>

namespace clover::train {

/// The export formats and the programs that read them, for --help.
std::string list_export_formats();

/// InputError for an unknown format, listing the known ones, and for an output that already exists.
void check_export(const std::string& format, const std::filesystem::path& output);

/// Converts a heads folder to another format; the output appears when it is complete.  "clover" is this
/// project's own (docs/checkpoint-format.md), the others are those of train/heads/formats/.  `target`: folder
/// of the target, for formats that hold its LM head; "": where it was in training.  InputError as
/// `check_export`, and for heads that the format or `dtype` cannot hold.
void export_heads(const std::filesystem::path& heads, const std::string& format,
                  const std::filesystem::path& output, c10::ScalarType dtype, const std::string& target);

}  // namespace clover::train
