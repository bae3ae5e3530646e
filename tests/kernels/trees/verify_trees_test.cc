#include "kernels/trees/verify_trees.h"

#include <ATen/ATen.h>

#include <random>

#include "tests/kernels/here.h"

namespace clover::kernels {
namespace {

struct Tree {
  std::vector<int64_t> ids, parents, slots, tokens;  // parents within the tree
  int64_t first_drafter_row = 0, drafter_rows = 0, last_row_index = 0;
};

/// Rows of the tree, from its root.
std::vector<int64_t> path_of(const Tree& tree) {
  std::vector<int64_t> path{0};
  for (bool found = true; found;) {
    found = false;
    for (int64_t row = 0; row < std::ssize(tree.ids) && !found; ++row) {
      found = tree.parents[row] == path.back() && tree.ids[row] == tree.tokens[path.back()];
      if (found) path.push_back(row);
    }
  }
  return path;
}

VerifyInput tensors_of(const std::vector<Tree>& trees) {
  std::vector<int64_t> ids, parents, slots, tokens, places;
  for (const Tree& tree : trees) {
    const int64_t base = std::ssize(ids);
    for (const auto& [to, from] :
         {std::pair{&ids, &tree.ids}, {&slots, &tree.slots}, {&tokens, &tree.tokens}})
      to->insert(to->end(), from->begin(), from->end());
    for (const int64_t parent : tree.parents) parents.push_back(parent < 0 ? -1 : base + parent);
    places.insert(places.end(), {base, std::ssize(tree.ids), tree.first_drafter_row, tree.drafter_rows,
                                 tree.last_row_index});
  }
  return {at::tensor(tokens), at::tensor(ids), at::tensor(parents), at::tensor(slots),
          at::tensor(places).view({-1, tree_rows_size})};
}

constexpr int64_t untouched = -7;

VerifyOutput room_for(int64_t rows, int64_t drafter_rows, int64_t trees) {
  return {at::full({3, rows}, untouched), at::full({drafter_rows}, untouched),
          at::full({drafter_rows + 2}, untouched), at::full({trees}, untouched)};
}

VerifyOutput followed(const VerifyInput& judged, const VerifyOutput& room) {
  VerifyOutput placed{here::place(room.moves).clone(), here::place(room.drafter_rows).clone(),
                      here::place(room.next_ids).clone(), here::place(room.last_rows).clone()};
  verify_trees({here::place(judged.tokens), here::place(judged.ids), here::place(judged.parents),
                here::place(judged.slots), here::place(judged.trees)},
               placed);
  return {placed.moves.cpu(), placed.drafter_rows.cpu(), placed.next_ids.cpu(), placed.last_rows.cpu()};
}

/// The contract's words as plain loops.
VerifyOutput by_hand(const std::vector<Tree>& trees, VerifyOutput room) {
  int64_t base = 0;
  for (int64_t t = 0; t < std::ssize(trees); ++t) {
    const Tree& tree = trees[t];
    const std::vector<int64_t> path = path_of(tree);
    for (int64_t i = 0; i < std::ssize(tree.ids); ++i) {
      const bool moves = i < std::ssize(path) && path[i] != i;
      room.moves[0][base + i] = moves ? tree.slots[path[i]] : -1;
      room.moves[1][base + i] = tree.slots[i];
      room.moves[2][base + i] = t;
    }
    const int64_t accepted = std::min<int64_t>(std::ssize(path), tree.drafter_rows);
    for (int64_t i = 0; i < tree.drafter_rows; ++i) {
      const int64_t row = i + 1 < accepted ? path[i] : path.back();
      room.drafter_rows[tree.first_drafter_row + i] = base + row;
      room.next_ids[tree.first_drafter_row + i] = std::max<int64_t>(0, tree.tokens[row]);
    }
    if (accepted > 0) room.last_rows[tree.last_row_index] = tree.first_drafter_row + accepted - 1;
    base += std::ssize(tree.ids);
  }
  return room;
}

void expect_same(const VerifyOutput& found, const VerifyOutput& expected) {
  EXPECT_TRUE(at::equal(found.moves, expected.moves)) << found.moves << expected.moves;
  EXPECT_TRUE(at::equal(found.drafter_rows, expected.drafter_rows))
      << found.drafter_rows << expected.drafter_rows;
  EXPECT_TRUE(at::equal(found.next_ids, expected.next_ids)) << found.next_ids << expected.next_ids;
  EXPECT_TRUE(at::equal(found.last_rows, expected.last_rows)) << found.last_rows << expected.last_rows;
}

class Random {
 public:
  int64_t draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  /// Siblings hold different tokens; the target often says one of them.
  Tree tree(int64_t rows) {
    Tree tree{{draw(0, 50)}, {-1}, {draw(0, 9999)}, {}, 0, 0, 0};
    std::vector<int64_t> children(rows, 0);
    while (std::ssize(tree.ids) < rows) {
      const int64_t parent = draw(std::max<int64_t>(0, std::ssize(tree.ids) - 4), std::ssize(tree.ids) - 1);
      tree.parents.push_back(parent);
      tree.ids.push_back(10 * children[parent]++);
      tree.slots.push_back(draw(0, 9999));
    }
    for (int64_t row = 0; row < rows; ++row)
      tree.tokens.push_back(children[row] > 0 && draw(0, 4) > 0 ? 10 * draw(0, children[row] - 1)
                                                                : draw(-1, 0) * 2 + 1);
    return tree;
  }

 private:
  std::mt19937_64 random_{3};
};

TEST(VerifyTrees, FindsWhatPlainLoopsFind) {
  on_every_path([] {
    Random random;
    for (int round = 0; round < (here::emulated() ? 40 : 200); ++round) {
      SCOPED_TRACE(round);
      std::vector<Tree> trees;
      int64_t rows = 0, seen = random.draw(0, 3), frontier = 0;  // other rows stand before
      for (int64_t count = random.draw(1, 5); count > 0; --count) {
        Tree tree = random.tree(random.draw(0, 2) == 0 ? random.draw(1, 90) : random.draw(1, 6));
        rows += std::ssize(tree.ids);
        if (random.draw(0, 3) > 0) {
          tree.first_drafter_row = seen;
          tree.drafter_rows = random.draw(0, 1) ? std::ssize(tree.ids) : random.draw(1, 3);
          tree.last_row_index = frontier++;
          seen += tree.drafter_rows + random.draw(0, 2);
        }
        trees.push_back(std::move(tree));
      }
      const VerifyOutput room = room_for(rows, seen, frontier + 1);
      VerifyOutput expected = by_hand(trees, {room.moves.clone(), room.drafter_rows.clone(),
                                              room.next_ids.clone(), room.last_rows.clone()});
      ASSERT_NO_FATAL_FAILURE(expect_same(followed(tensors_of(trees), room), expected));
    }
  });
}

// Where the target says nothing there is nothing to follow, and no row of an embedding below the first.
TEST(VerifyTrees, NoTokenEndsAPath) {
  on_every_path([] {
    const Tree tree{{4, 6, 7}, {-1, 0, 1}, {20, 21, 22}, {6, -1, 9}, 0, 3, 0};
    const VerifyOutput found = followed(tensors_of({tree}), room_for(3, 3, 1));
    EXPECT_TRUE(at::equal(found.drafter_rows, at::tensor({0, 1, 1}, at::kLong))) << found.drafter_rows;
    EXPECT_TRUE(at::equal(found.next_ids.slice(0, 0, 3), at::tensor({6, 0, 0}, at::kLong)));
    EXPECT_EQ(found.last_rows.item<int64_t>(), 1);
  });
}

TEST(VerifyTrees, SaysWhatIsWrong) {
  const Tree tree{{4, 6}, {-1, 0}, {20, 21}, {6, 9}, 0, 2, 0};
  const VerifyInput judged = tensors_of({tree});
  VerifyOutput room = room_for(2, 2, 1);
  room.next_ids = at::full({1}, untouched);
  EXPECT_NE(error_of([&] { followed(judged, room); }).find("room for 1 next tokens, expected 2"),
            std::string::npos);
  EXPECT_NE(error_of([&] { followed(judged, room_for(3, 2, 1)); }).find("moves has shape [3, 3]"),
            std::string::npos);
}

// Only the CPU looks.
TEST(VerifyTrees, PlacesOutsideTheirTensorsAreTold) {
  const auto error = [](const TreeRows& place) {
    VerifyInput judged = tensors_of({Tree{{4, 6}, {-1, 0}, {20, 21}, {6, 9}, 0, 2, 0}});
    judged.trees =
        at::tensor({place.row, place.rows, place.first_drafter_row, place.drafter_rows, place.last_row_index})
            .view({1, 5});
    VerifyOutput room = room_for(2, 2, 1);
    return error_of([&] { verify_trees(judged, room); });
  };
  EXPECT_EQ(error({0, 2, 0, 2, 0}), "");
  EXPECT_NE(error({1, 2, 0, 2, 0}).find("tree 0 has rows 1 + 2 of 2"), std::string::npos);
  EXPECT_NE(error({0, 0, 0, 2, 0}).find("has rows 0 + 0"), std::string::npos);
  EXPECT_NE(error({0, 2, 1, 2, 0}).find("no room"), std::string::npos);
  EXPECT_NE(error({0, 2, 0, 2, 1}).find("no room"), std::string::npos);
  EXPECT_EQ(error({0, 2, 9, 0, 9}), "") << "no range, no place";
}

}  // namespace
}  // namespace clover::kernels
