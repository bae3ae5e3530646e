#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "infer/tree/static_tree.h"

namespace clover::infer {

/// How candidate trees grow.  `automatic` is "auto", `fixed_tree` is "static".
enum class Policy { automatic, off, chain, fixed_tree, clover };

/// Which of a node's children are kept, besides the most probable one (kernels::LevelRule).
struct ChildCuts {
  double top_p;         // children kept while their cumulative probability stays within
  double relative_cut;  // children below this share of the best one's probability are dropped
};

/// All that the rest of the program knows of one growth policy.  A new policy is an enumerator, a row of
/// `growth_policies` and, where no method here grows its trees, a method in grow.cc.
struct GrowthPolicy {
  enum class Method {
    none,            // no guesses of the heads
    by_probability,  // level by level, the most probable children first (kernels::grow_level)
    by_plan,         // the shape is known in advance: `plan`
  };

  Policy policy;
  const char* name;       // of --draft and of JSON output
  const char* help = "";  // stands in parentheses behind the name in --help; "" for none
  Method method = Method::by_probability;
  const StaticTree& (*plan)() = nullptr;  // of Method::by_plan, cut to the budget
  bool needs_heads = true;                // an error without --heads
  int64_t default_budget = -1;            // nodes a sequence, root excluded, without --budget; -1: no limit
  bool runs_every_budget = false;         // `bench --budgets` measures it once a budget, others once
  int64_t most_children = std::numeric_limits<int64_t>::max();  // of one node
  bool reports_cuts = false;               // JSON output shows --tree-top-p and --tree-cut
  std::optional<ChildCuts> own_cuts = {};  // the engine's in place of --tree-top-p and --tree-cut
  bool drops_improbable = false;           // nodes below GrowthRule::least_joint are dropped
};

inline constexpr std::array growth_policies{
    // The engine chooses trees step by step from what rows cost (CostModel), and may choose none.  They are
    // grown wide, because CostModel::trim cuts them afterwards.
    GrowthPolicy{.policy = Policy::automatic,
                 .name = "auto",
                 .help = "measures and chooses",
                 .needs_heads = false,
                 .most_children = 16,
                 .reports_cuts = true,
                 .own_cuts = ChildCuts{.top_p = 0.95, .relative_cut = 0},
                 .drops_improbable = true},
    // Plain decoding.
    GrowthPolicy{.policy = Policy::off,
                 .name = "off",
                 .method = GrowthPolicy::Method::none,
                 .needs_heads = false,
                 .default_budget = 0},
    // The most probable guess of every head.
    GrowthPolicy{.policy = Policy::chain, .name = "chain", .most_children = 1},
    // The tree that Medusa and Hydra ship.
    GrowthPolicy{.policy = Policy::fixed_tree,
                 .name = "static",
                 .method = GrowthPolicy::Method::by_plan,
                 .plan = medusa_tree,
                 .runs_every_budget = true},
    // Clover's dynamic tree: top-p and relative cut a node, then the budget's most probable nodes
    // (docs/drafters/clover.md).
    GrowthPolicy{.policy = Policy::clover,
                 .name = "clover",
                 .default_budget = 4,
                 .runs_every_budget = true,
                 .reports_cuts = true}};

/// The default budgets above, in the words of --help.
inline constexpr const char* default_budgets_help =
    "clover 4, chain its depth, static and auto as many as there may be";

const GrowthPolicy& growth_policy(Policy policy);

/// All names, in the order of the table.
std::vector<std::string> growth_policy_names();

/// "auto (measures and chooses), off, chain, ..": names and help, for --help.
std::string growth_policies_help();

/// The policy of that name; InputError that lists all names otherwise.
Policy parse_policy(const std::string& name);
std::string to_string(Policy policy);

}  // namespace clover::infer
