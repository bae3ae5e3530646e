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
enum class Policy { automatic, off, chain, fixed_tree, clover, beam, best_first };

/// Which of a node's guesses may become its children.  The most probable one always passes
/// these cuts; GrowthPolicy::drops_improbable and Admit may still leave it out.
struct ChildCuts {
  double top_p;         // guesses are taken, best first, while their probabilities sum to at most this
  double relative_cut;  // a guess must have at least this share of the best one's probability
};

/// Everything about one growth policy.  Trees grow level by level: each live node is expanded to guesses,
/// some guesses are admitted as nodes, some of these nodes stay live for the next level, and at the end some
/// of all nodes remain in the tree.  A new policy is an enumerator of Policy and a row of `growth_policies`.
struct GrowthPolicy {
  Policy policy;
  const char* name;       // in --draft and in JSON output
  const char* help = "";  // shown in parentheses after the name in --help; "": nothing
  bool drafts = true;     // false: plain decoding, without guesses of any kind
  // Whether CostModel (infer/cost/cost_model.h) decides how large trees are, and whether there are any.
  bool uses_cost_model = false;

  // Expand: how many guesses of a live node are considered, and how they are ranked.
  int64_t max_children = std::numeric_limits<int64_t>::max();
  // Without --NAME-width: so many guesses of a live node, and so many live nodes of a level; 0: a policy
  // without a width.
  int64_t default_width = 0;
  int64_t max_width = 0;        // largest --NAME-width
  const char* width_help = "";  // what the width is, for --NAME-width in --help
  // Largest --NAME-length, the depth of the trees; 0: no such option, and trees are as deep as the heads
  // reach.
  int64_t max_depth = 0;
  std::optional<ChildCuts> own_cuts = {};  // in place of --tree-top-p and --tree-cut
  bool drops_improbable = false;           // nodes below GrowthRule::min_joint_probability are dropped
  // true: a node's score is the summed log-probability of its path; false: the product of the probabilities.
  // The order is the same but for rounding and ties (LevelRule in kernels/trees/tree_growth_call.h).
  bool by_log_probability = false;
  // Probabilities are the softmax over so many best guesses of a row; 0: over the whole draft vocabulary.
  int64_t softmax_over = 0;

  // Admit: which children become nodes, best first.
  enum class Admit {
    until_full,     // level by level, the best first, until the tree has `budget` nodes
    best_of_level,  // the best `width` of every level
    best_so_far,    // those among the best `budget` nodes of the tree so far
    planned,        // those of `plan`, cut to the budget
  };
  Admit admit = Admit::until_full;
  const StaticTree& (*plan)() = nullptr;  // the fixed tree of Admit::planned

  // Live on: under a policy with a width the best `width` nodes of a level, under a plan the nodes that have
  // children, under other policies as many as the device computes efficiently (model::Growth::max_live).

  // Remain: which of the nodes stay in the tree once it has grown.
  enum class Remain {
    all,
    best,                 // the `budget` best nodes
    paths_to_last_level,  // the nodes of the last level and their ancestors; the best `budget` of these
  };
  Remain remain = Remain::all;

  // What the command line and reports show.
  bool needs_heads = true;  // an error without --heads
  // Without --budget: nodes of a tree, root excluded; -1: as many as max_budget and the rows of a pass allow.
  int64_t default_budget = -1;
  int64_t max_budget = 255;        // a larger --budget counts as this
  bool runs_every_budget = false;  // `bench --budgets` measures it with every budget, other policies once
  bool reports_cuts = false;       // JSON output shows the cuts (cuts_of)
};

inline constexpr std::array growth_policies{
    // Trees are grown wide, because CostModel::trim cuts them afterwards.
    GrowthPolicy{.policy = Policy::automatic,
                 .name = "auto",
                 .help = "measures and chooses",
                 .uses_cost_model = true,
                 .max_children = 16,
                 .own_cuts = ChildCuts{.top_p = 0.95, .relative_cut = 0},
                 .drops_improbable = true,
                 .needs_heads = false,
                 .max_budget = 63,
                 .reports_cuts = true},
    // Plain decoding.
    GrowthPolicy{
        .policy = Policy::off, .name = "off", .drafts = false, .needs_heads = false, .default_budget = 0},
    // The most probable guess of every head.
    GrowthPolicy{.policy = Policy::chain, .name = "chain", .max_children = 1},
    // The tree that Medusa and Hydra ship.
    GrowthPolicy{.policy = Policy::fixed_tree,
                 .name = "static",
                 .admit = GrowthPolicy::Admit::planned,
                 .plan = medusa_tree,
                 .runs_every_budget = true},
    // Clover's dynamic tree: top-p and a relative cut among the children of each node, then, level by
    // level, the most probable of them until the budget is reached (docs/drafters/clover.md).
    GrowthPolicy{.policy = Policy::clover,
                 .name = "clover",
                 .default_budget = 4,
                 .runs_every_budget = true,
                 .reports_cuts = true},
    // ReDrafter's beam search and dynamic tree attention (arXiv 2403.09919; Apple's code): nodes that are
    // on no remaining beam are not verified, and beams share the nodes of their common beginning.  The
    // probabilities of a beam's guesses are the softmax over its best 50, which changes the ranking of beams.
    GrowthPolicy{.policy = Policy::beam,
                 .name = "beam",
                 .default_width = 4,
                 .max_width = 64,
                 .width_help = "beams of every level",
                 .max_depth = 16,
                 .own_cuts = ChildCuts{.top_p = 1, .relative_cut = 0},
                 .by_log_probability = true,
                 .softmax_over = 50,
                 .admit = GrowthPolicy::Admit::best_of_level,
                 .remain = GrowthPolicy::Remain::paths_to_last_level},
    // EAGLE-2's dynamic tree (arXiv 2406.16858): the most probable `width` nodes of every level are
    // expanded, and the most probable of all nodes are verified.
    GrowthPolicy{.policy = Policy::best_first,
                 .name = "best-first",
                 .default_width = 10,
                 .max_width = 64,
                 .width_help = "nodes of every level that get children, and children of each",
                 .own_cuts = ChildCuts{.top_p = 1, .relative_cut = 0},
                 .by_log_probability = true,
                 .admit = GrowthPolicy::Admit::best_so_far,
                 .remain = GrowthPolicy::Remain::best,
                 .default_budget = 60,
                 .runs_every_budget = true}};

/// The policy of plain decoding, and the one in force without --draft.
inline constexpr Policy plain_policy = Policy::off, default_policy = Policy::automatic;

/// The policy's row of the table.
const GrowthPolicy& growth_policy(Policy policy);

/// All names, in the order of the table.
std::vector<std::string> growth_policy_names();

/// "auto (measures and chooses), off, chain, ..": names and help, for --help.
std::string growth_policies_help();

/// "clover 4, best-first 60, ..": the default budgets of all policies, for --help.
std::string default_budgets_help();

/// "static, clover and best-first": the policies that bench and verify-equal run once for each of --budgets.
std::string policies_with_budgets();

/// The policy of that name; InputError that lists all names otherwise.
Policy parse_policy(const std::string& name);
std::string to_string(Policy policy);

}  // namespace clover::infer
