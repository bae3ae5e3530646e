#pragma once

#include "kernels/trees/select_nodes_call.h"
#include "kernels/trees/tree_growth.h"

namespace clover::kernels {

/// Prunes grown trees: copies to `kept`, in their order, the root and the TreeState::max_kept - 1 best of the
/// nodes that `rule` allows, ties to the lower number.  No node scores higher than its parent, so a
/// kept node's parent is kept too, and nodes stay at their depth.
///   kept: ids, parent, score [S, M] and state are written, the other members are not used.  kept.score holds
///   joint probabilities even if grown.score holds logarithms.  At most M nodes of a tree are kept.
void select_nodes(const GrowingTrees& grown, const SelectRule& rule, GrowingTrees& kept);

}  // namespace clover::kernels
