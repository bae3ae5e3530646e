#include "model/drafters/factory.h"

#include <algorithm>

#include "data/files/error.h"

namespace clover::model {

Setting heads_setting(int64_t default_value) {
  return Setting::integer("heads", default_value, 1, max_guess_depth,
                          "how many tokens ahead it learns to guess: its number of heads, if it has several");
}

// Applies a macro to the name of each kind.  kinds/NAME.cc defines the function `DrafterKind NAME_drafter()`.
#define CLOVER_DRAFTER_KINDS(macro) \
  macro(clover) macro(clover2) macro(eagle) macro(eagle3) macro(hydra) macro(medusa) macro(redrafter)

#define CLOVER_DECLARE(name) DrafterKind name##_drafter();
#define CLOVER_CALL(name) name##_drafter(),

CLOVER_DRAFTER_KINDS(CLOVER_DECLARE)

const std::vector<DrafterKind>& drafter_table() {
  static const std::vector<DrafterKind> table{CLOVER_DRAFTER_KINDS(CLOVER_CALL)};
  return table;
}

const DrafterKind& drafter_kind(const std::string& name) {
  std::string names;
  for (const DrafterKind& kind : drafter_table()) {
    if (kind.name == name) return kind;
    names += (names.empty() ? "" : ", ") + kind.name;
  }
  throw data::InputError("Drafter kind \"" + name + "\" is unknown; expected one of: " + names + ".");
}

const Setting* DrafterKind::setting_of_option(const std::string& option) const {
  const auto found = std::ranges::find(settings, option, &Setting::option_name);
  return found == settings.end() ? nullptr : &*found;
}

void refuse_setting(const std::string& kind, const std::string& name, const nlohmann::json& value,
                    const std::string& expected) {
  throw data::InputError("Setting \"" + name + "\" of drafter " + kind + " is " + value.dump().substr(0, 80) +
                         ", expected " + expected + ".");
}

}  // namespace clover::model
