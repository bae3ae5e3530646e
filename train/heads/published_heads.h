#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/drafters/drafter.h"
#include "model/target/target.h"
#include "train/heads/formats/format.h"

namespace clover::train {

/// Heads in the file layout of another project (train/heads/formats/), to be loaded into a drafter of this
/// one.
class PublishedHeads {
 public:
  /// Reads config.json.  InputError for a folder of no known layout, and for heads whose settings our drafter
  /// of that kind does not support.
  static PublishedHeads open(const std::filesystem::path& folder, const model::TargetConfig& target);

  const std::string& format() const { return format_->name; }
  const std::string& kind() const { return import_.kind; }
  const nlohmann::json& settings() const { return import_.settings; }  // for model::make_drafter

  /// The draft vocabulary of these heads, i64 [V'] ascending; undefined for the whole vocabulary.  InputError
  /// if it has ids that the target does not have.
  at::Tensor token_map(const model::TargetConfig& target) const;

  /// Loads the weights into `drafter`, which was made with `kind`, `settings` and `token_map`.  InputError
  /// for missing, extra and mis-shaped tensors, and for a copy of an LM head or embedding that is not this
  /// target's.
  void read_into(model::Drafter& drafter, const model::Target& target);

  /// What `read_into` loaded, checked and left out, one sentence each.
  const std::vector<std::string>& report() const { return report_; }

 private:
  PublishedHeads(std::filesystem::path folder, const HeadsFormat& format, HeadsImport import)
      : folder_(std::move(folder)), format_(&format), import_(std::move(import)) {}
  /// Checks that the stored tensors `names`, if present, are the target's `weight` [V, H] up to rounding, or
  /// its rows `token_ids` i64 [V'].  `what`: the weight's name for messages.
  void check_copies(const data::SafetensorsReader& reader, const std::set<std::string>& names,
                    const kernels::PackedWeight& weight, const char* what, const at::Tensor& token_ids);

  std::filesystem::path folder_;
  const HeadsFormat* format_;
  HeadsImport import_;
  std::vector<std::string> report_;
};

/// The published formats with their kinds of heads, for --help and messages: those that `init --published`
/// reads, and those that `export --format` writes.
std::string list_published_formats();
std::string list_writable_formats();

}  // namespace clover::train
