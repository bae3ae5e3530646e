#include "infer/tree/growth_policies.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "data/files/error.h"

namespace clover::infer {
namespace {

/// The names as a list such as "a, b or c", where `last_word` is "or".
std::string joined_names(const std::vector<std::string>& names, const std::string& last_word) {
  std::string list;
  for (size_t i = 0; i < names.size(); ++i)
    list += (i == 0 ? "" : i + 1 < names.size() ? ", " : " " + last_word + " ") + names[i];
  return list;
}

}  // namespace

const GrowthPolicy& growth_policy(Policy policy) {
  const auto found = std::ranges::find(growth_policies, policy, &GrowthPolicy::policy);
  TORCH_CHECK(found != growth_policies.end(), "growth_policy: the table lacks policy ",
              static_cast<int>(policy));
  return *found;
}

std::vector<std::string> growth_policy_names() {
  std::vector<std::string> names;
  for (const GrowthPolicy& row : growth_policies) names.push_back(row.name);
  return names;
}

std::string growth_policies_help() {
  std::string help;
  for (const GrowthPolicy& row : growth_policies) {
    help += (help.empty() ? "" : ", ") + std::string(row.name);
    if (*row.help) help += " (" + std::string(row.help) + ")";
  }
  return help;
}

std::string default_budgets_help() {
  std::string help;
  for (const GrowthPolicy& row : growth_policies)
    if (row.default_budget > 0)
      help += std::string(row.name) + " " + std::to_string(row.default_budget) + ", ";
  for (const GrowthPolicy& row : growth_policies)
    if (row.max_children == 1) help += std::string(row.name) + " its depth, ";
  return help + "others as many as there may be";
}

std::string policies_with_budgets() {
  std::vector<std::string> names;
  for (const GrowthPolicy& row : growth_policies)
    if (row.runs_every_budget) names.push_back(row.name);
  return joined_names(names, "and");
}

Policy parse_policy(const std::string& name) {
  const auto found = std::ranges::find(growth_policies, name, &GrowthPolicy::name);
  if (found != growth_policies.end()) return found->policy;
  throw data::InputError("draft policy: \"" + name + "\" is unknown; choose " +
                         joined_names(growth_policy_names(), "or"));
}

std::string to_string(Policy policy) {
  return growth_policy(policy).name;
}

}  // namespace clover::infer
