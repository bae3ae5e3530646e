#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/drafters/drafter.h"
#include "model/drafters/setting.h"

namespace clover::model {

/// What a drafter of any kind is made from.  Kinds read it in their constructors only.
struct DrafterSpec {
  const nlohmann::json& settings;  // all settings of the kind, checked
  const TargetView& target;
  const at::Tensor& token_map;  // i64 [V'], or undefined: the whole vocabulary
  bool trainable;               // keep what training needs (make_drafter)
  uint64_t seed;                // of initial weights that are drawn at random
};

/// A kind of drafter, such as "medusa".
struct DrafterKind {
  std::string name;
  std::function<std::shared_ptr<Drafter>(const DrafterSpec&)> make;
  std::vector<Setting> settings;  // the declarations

  /// The setting that --`option` sets; null for a kind that has none.
  const Setting* setting_of_option(const std::string& option) const;
};

/// All kinds, in the order of messages and --help.  To add a kind, write its file in kinds/ and add its name
/// to factory.cc.
const std::vector<DrafterKind>& drafter_table();

/// The kind of that name; InputError when there is none.
const DrafterKind& drafter_kind(const std::string& name);

/// Drafter::max_depth of recurrent kinds, which could guess any number of tokens ahead: deeper guesses are
/// hardly ever accepted.
constexpr int64_t max_guess_depth = 16;

/// The declaration of the setting `heads`, which every kind has: 1 to max_guess_depth.
Setting heads_setting(int64_t default_value);

/// Throws an InputError: setting `name` of drafter kind `kind` is `value`, which is not allowed.  `expected`:
/// what it should be.
[[noreturn]] void refuse_setting(const std::string& kind, const std::string& name,
                                 const nlohmann::json& value, const std::string& expected);

}  // namespace clover::model
