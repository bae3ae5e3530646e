#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/drafters/drafter.h"
#include "model/drafters/setting.h"

namespace clover::model {

/// What a drafter of any kind is made from.
struct DrafterSpec {
  const nlohmann::json& settings;  // all that the kind declares, each checked
  const TargetView& target;
  const at::Tensor& token_map;
  bool trainable;
  uint64_t seed;
};

/// A kind of drafter: its name, how one is made, and the declaration of its settings.
struct DrafterKind {
  std::string name;
  std::function<std::shared_ptr<Drafter>(const DrafterSpec&)> make;
  std::vector<Setting> settings;

  /// The setting that --`option` sets; null for a kind that has none.
  const Setting* setting_of_option(const std::string& option) const;
};

/// The table of kinds, in the order of messages and --help.  A new kind is a file beside this one, which
/// defines its function, and the function's name in factory.cc.
const std::vector<DrafterKind>& drafter_table();

/// The kind of that name; InputError when there is none.
const DrafterKind& drafter_kind(const std::string& name);

/// How deep kinds whose recurrence has no end guess at most: beyond, hardly any guess is ever accepted.
constexpr int64_t deepest_guess = 16;

/// InputError: setting `name` of drafter `kind` is `value`, which this target does not allow.
[[noreturn]] void refuse_setting(const std::string& kind, const std::string& name,
                                 const nlohmann::json& value, const std::string& expected);

}  // namespace clover::model
