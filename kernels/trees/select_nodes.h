#pragma once

#include "kernels/trees/select_nodes_call.h"
#include "kernels/trees/tree_growth.h"

namespace clover::kernels {

/// Copies the nodes that remain of grown trees to `kept`, in their order.  Those that `rule` leaves are cut
/// to the TreeState::most_kept - 1 of the highest score, ties to the lower number, and the root: so a parent
/// remains where its child does.  Every node of a level of `kept` was one of that level before.
///   kept: ids, parent, score [S, M] and state; its other members are not used.  `score` then holds joint
///   probabilities, whatever the scores were.  Trees of at most M nodes remain.
void select_nodes(const GrowingTrees& grown, const SelectRule& rule, GrowingTrees& kept);

}  // namespace clover::kernels
