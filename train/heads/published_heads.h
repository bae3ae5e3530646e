#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/drafters/drafter.h"
#include "model/target/target.h"
#include "train/heads/formats/format.h"

namespace clover::train {

/// Heads in the file layout of another project (train/heads/formats/).
class PublishedHeads {
 public:
  /// InputError for a folder of no known layout, naming what was looked for, and for heads whose settings our
  /// drafter of that kind does not support.
  static PublishedHeads open(const std::filesystem::path& folder, const model::TargetConfig& target);

  const std::string& format() const { return format_->name; }
  const std::string& kind() const { return import_.kind; }
  const nlohmann::json& settings() const { return import_.settings; }  // for make_drafter

  /// The draft vocabulary of these heads, i64 [V'] ascending; undefined for the whole vocabulary.  InputError
  /// when it is none of this target.
  at::Tensor token_map(const model::TargetConfig& target) const;

  /// Loads the weights into `drafter`, which was made with kind and settings.  InputError for missing, extra
  /// and mis-shaped tensors, and for a stored copy of the LM head or the embedding that is not this target's.
  void read_into(model::Drafter& drafter, const model::Target& target);

  /// What was taken over, checked and left out, a sentence each; after `read_into`.
  const std::vector<std::string>& report() const { return report_; }

 private:
  PublishedHeads(std::filesystem::path folder, const HeadsFormat& format, HeadsImport import)
      : folder_(std::move(folder)), format_(&format), import_(std::move(import)) {}
  void check_copies(const data::SafetensorsReader& reader, const std::set<std::string>& names,
                    const kernels::PackedWeight& own, const char* what, const at::Tensor& map);

  std::filesystem::path folder_;
  const HeadsFormat* format_;
  HeadsImport import_;
  std::vector<std::string> report_;
};

/// The formats that `init --published` reads, or that `export --format` writes, with the kinds of heads, for
/// --help and messages.
std::string list_published_formats();
std::string list_written_formats();

}  // namespace clover::train
