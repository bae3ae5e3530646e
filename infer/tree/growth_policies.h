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

/// Which of a node's children are kept, besides the most probable one (kernels::LevelRule).
struct ChildCuts {
  double top_p;         // children kept while their cumulative probability stays within
  double relative_cut;  // children below this share of the best one's probability are dropped
};

/// All that the rest of the program knows of one growth policy.  Trees grow level by level: live nodes are
/// expanded to guesses, some of these are admitted as nodes, some of the nodes live on to be expanded, and
/// once the tree has grown some remain in it.  A new policy is an enumerator and a row of `growth_policies`.
struct GrowthPolicy {
  Policy policy;
  const char* name;       // of --draft and of JSON output
  const char* help = "";  // stands in parentheses behind the name in --help; "" for none
  bool drafts = true;     // false: plain decoding, without guesses of any kind
  // Whether trees follow from what rows cost and guesses are worth here (CostModel), and may be none.
  bool uses_cost_model = false;

  // Expand: how many guesses of a live node are looked at.
  int64_t most_children = std::numeric_limits<int64_t>::max();
  int64_t default_width = 0;  // of a policy whose nodes expand to GrowthRule::width guesses; 0: it has none
  int64_t most_width = 0;
  const char* width_help = "";             // what it is, behind --NAME-width in --help
  int64_t max_depth = 0;                   // of GrowthRule::depth, for policies with that option; 0: none
  std::optional<ChildCuts> own_cuts = {};  // in place of --tree-top-p and --tree-cut
  bool drops_improbable = false;           // nodes below GrowthRule::least_joint are dropped
  // Nodes are ranked by summed log-probability; else by joint probability.
  bool by_log_probability = false;
  // Probabilities are those among so many best guesses of a row; 0: among the whole draft vocabulary.
  int64_t softmax_over = 0;

  // Admit: which children become nodes, best first.
  enum class Admit {
    until_full,   // until the tree has its budget
    width,        // of every level the best `width`
    best_so_far,  // those that are among the `budget` best nodes so far
    planned,      // those of `plan`, cut to the budget
  };
  Admit admit = Admit::until_full;
  const StaticTree& (*plan)() = nullptr;

  // A policy with a width lets the best `width` nodes of a level live on, a plan those that have children,
  // any other policy as many as Growth::most_live allows.

  // Remain: which of the nodes stay in the tree once it has grown.
  enum class Remain {
    all,
    best,                 // the `budget` best nodes
    paths_to_last_level,  // the last level and its ancestors, of them the best where they exceed the budget
  };
  Remain remain = Remain::all;

  // What the command line and reports show.
  bool needs_heads = true;         // an error without --heads
  int64_t default_budget = -1;     // nodes a sequence, root excluded, without --budget; -1: no limit
  int64_t most_budget = 255;       // .. that --budget can ask for
  bool runs_every_budget = false;  // `bench --budgets` measures it once a budget, others once
  bool reports_cuts = false;       // JSON output shows the cuts (cuts_of)
};

inline constexpr std::array growth_policies{
    // Trees are grown wide, because CostModel::trim cuts them afterwards.
    GrowthPolicy{.policy = Policy::automatic,
                 .name = "auto",
                 .help = "measures and chooses",
                 .uses_cost_model = true,
                 .most_children = 16,
                 .own_cuts = ChildCuts{.top_p = 0.95, .relative_cut = 0},
                 .drops_improbable = true,
                 .needs_heads = false,
                 .most_budget = 63,
                 .reports_cuts = true},
    // Plain decoding.
    GrowthPolicy{
        .policy = Policy::off, .name = "off", .drafts = false, .needs_heads = false, .default_budget = 0},
    // The most probable guess of every head.
    GrowthPolicy{.policy = Policy::chain, .name = "chain", .most_children = 1},
    // The tree that Medusa and Hydra ship.
    GrowthPolicy{.policy = Policy::fixed_tree,
                 .name = "static",
                 .admit = GrowthPolicy::Admit::planned,
                 .plan = medusa_tree,
                 .runs_every_budget = true},
    // Clover's dynamic tree: top-p and relative cut a node, then the budget's most probable nodes
    // (docs/drafters/clover.md).
    GrowthPolicy{.policy = Policy::clover,
                 .name = "clover",
                 .default_budget = 4,
                 .runs_every_budget = true,
                 .reports_cuts = true},
    // ReDrafter's beam search and dynamic tree attention (arXiv 2403.09919; Apple's code): nodes that only
    // dead beams used are not verified, and what beams have in common stands in the tree once.  A beam's
    // probabilities are those among its best 50 guesses, which changes ranks between beams.
    GrowthPolicy{.policy = Policy::beam,
                 .name = "beam",
                 .default_width = 4,
                 .most_width = 64,
                 .width_help = "beams of every level",
                 .max_depth = 16,
                 .own_cuts = ChildCuts{.top_p = 1, .relative_cut = 0},
                 .by_log_probability = true,
                 .softmax_over = 50,
                 .admit = GrowthPolicy::Admit::width,
                 .remain = GrowthPolicy::Remain::paths_to_last_level},
    // EAGLE-2's dynamic tree (arXiv 2406.16858): of every level the likeliest `width` nodes are expanded, and
    // of all nodes the likeliest are verified.
    GrowthPolicy{.policy = Policy::best_first,
                 .name = "best-first",
                 .default_width = 10,
                 .most_width = 64,
                 .width_help = "nodes of every level that get children, and children of each",
                 .own_cuts = ChildCuts{.top_p = 1, .relative_cut = 0},
                 .by_log_probability = true,
                 .admit = GrowthPolicy::Admit::best_so_far,
                 .remain = GrowthPolicy::Remain::best,
                 .default_budget = 60,
                 .runs_every_budget = true}};

/// The policy that decodes plainly, and the one without --draft.
inline constexpr Policy plain_policy = Policy::off, default_policy = Policy::automatic;

const GrowthPolicy& growth_policy(Policy policy);

/// All names, in the order of the table.
std::vector<std::string> growth_policy_names();

/// "auto (measures and chooses), off, chain, ..": names and help, for --help.
std::string growth_policies_help();

/// "clover 4, best-first 60, ..": the default budgets of the table, for --help.
std::string default_budgets_help();

/// "static, clover and best-first": the policies that bench and verify-equal run once for each of --budgets.
std::string policies_with_budgets();

/// The policy of that name; InputError that lists all names otherwise.
Policy parse_policy(const std::string& name);
std::string to_string(Policy policy);

}  // namespace clover::infer
