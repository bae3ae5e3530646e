#include "model/drafters/factory.h"

#include <algorithm>

#include "data/files/error.h"

namespace clover::model {

// The kinds: each is a function `DrafterKind NAME_drafter()` in the file of that name.
#define CLOVER_DRAFTER_KINDS(one) \
  one(clover) one(clover2) one(eagle) one(eagle3) one(hydra) one(medusa) one(redrafter)

#define CLOVER_DECLARE(name) DrafterKind name##_drafter();
#define CLOVER_CALL(name) name##_drafter(),

CLOVER_DRAFTER_KINDS(CLOVER_DECLARE)

const std::vector<DrafterKind>& drafter_table() {
  static const std::vector<DrafterKind> table{CLOVER_DRAFTER_KINDS(CLOVER_CALL)};
  return table;
}

const DrafterKind& drafter_kind(const std::string& name) {
  std::string known;
  for (const DrafterKind& kind : drafter_table()) {
    if (kind.name == name) return kind;
    known += (known.empty() ? "" : ", ") + kind.name;
  }
  throw data::InputError("Drafter kind \"" + name + "\" is unknown; expected one of: " + known + ".");
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
