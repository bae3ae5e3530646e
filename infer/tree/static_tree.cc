#include "infer/tree/static_tree.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <string>

#include "data/files/error.h"

namespace clover::infer {
namespace {

// The order of nodes: by length of the path, then by its ranks.
bool sorts_before(std::string_view left, std::string_view right) {
  return left.size() != right.size() ? left.size() < right.size() : left < right;
}

// [N] probability that all guesses on the path to a node are accepted; 1 for the root.  The sum over the
// nodes of a tree, root excluded, is its expected number of accepted guesses.
std::vector<double> path_probabilities(const StaticTree& tree) {
  std::vector<double> probability(tree.size(), 1.0);
  for (int64_t i = 1; i < tree.size(); ++i) {
    const int32_t parent = tree.parent[i];
    probability[i] = probability[parent] * medusa_accuracy(tree.depth[parent], tree.rank[i]);
  }
  return probability;
}

}  // namespace

StaticTree StaticTree::of_paths(std::span<const std::string_view> paths) {
  std::vector<std::string_view> sorted(paths.begin(), paths.end());
  std::sort(sorted.begin(), sorted.end(), sorts_before);
  StaticTree tree{{-1}, {0}, {0}};
  std::map<std::string_view, int32_t> node_of{{std::string_view(), 0}};
  for (const std::string_view path : sorted) {
    const std::string name(path);
    if (path.empty() || path.find_first_not_of("0123456789") != path.npos)
      throw data::InputError("static tree: path \"" + name + "\" is not a row of digits, one rank each");
    const auto parent = node_of.find(path.substr(0, path.size() - 1));
    if (parent == node_of.end())
      throw data::InputError("static tree: path \"" + name + "\" stands without \"" +
                             name.substr(0, name.size() - 1) + "\", the path to its parent; add that one");
    if (!node_of.emplace(path, static_cast<int32_t>(tree.size())).second)
      throw data::InputError("static tree: path \"" + name + "\" is given twice; remove one");
    tree.parent.push_back(parent->second);
    tree.rank.push_back(path.back() - '0');
    tree.depth.push_back(static_cast<int32_t>(path.size()));
  }
  return tree;
}

StaticTree StaticTree::cut(int64_t budget, int64_t max_depth, int64_t width) const {
  const std::vector<double> probability = path_probabilities(*this);
  std::vector<char> fits(size(), 1);
  std::vector<int64_t> order;
  for (int64_t i = 1; i < size(); ++i) {
    fits[i] = fits[parent[i]] && depth[i] <= max_depth && rank[i] < width;
    if (fits[i]) order.push_back(i);
  }
  // A node's probability is at most its parent's, and the sort is stable, so parents come before their
  // children and the first nodes of the order form a tree.
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return probability[a] > probability[b]; });
  order.resize(std::clamp<int64_t>(budget, 0, static_cast<int64_t>(order.size())));
  std::sort(order.begin(), order.end());

  StaticTree subtree{{-1}, {0}, {0}};
  std::vector<int32_t> new_index(size(), 0);
  for (const int64_t i : order) {
    new_index[i] = static_cast<int32_t>(subtree.size());
    subtree.parent.push_back(new_index[parent[i]]);
    subtree.rank.push_back(rank[i]);
    subtree.depth.push_back(depth[i]);
  }
  return subtree;
}

const StaticTree& medusa_tree() {
  static constexpr std::string_view paths[] = {
      "0",   "1",   "2",   "3",   "4",   "5",   "6",   "7",   "8",   "9",    "00",  "01",  "02",
      "03",  "04",  "05",  "06",  "07",  "08",  "09",  "10",  "11",  "12",   "13",  "14",  "15",
      "16",  "20",  "21",  "22",  "30",  "31",  "40",  "50",  "60",  "70",   "80",  "90",  "000",
      "001", "002", "003", "004", "005", "006", "007", "008", "009", "010",  "011", "012", "020",
      "021", "030", "040", "050", "060", "070", "100", "101", "200", "0000", "0001"};
  static const StaticTree tree = StaticTree::of_paths(paths);
  return tree;
}

double medusa_accuracy(int64_t depth, int64_t rank) {
  static constexpr double top1_accuracy[] = {0.560, 0.316, 0.201, 0.147, 0.118};
  // The s of each head for which top1_accuracy * sum over r < 5 of (r + 1)^-s is 0.780, 0.563, 0.417, 0.340,
  // 0.300.
  static constexpr double decay[] = {2.174, 1.473, 1.166, 0.979, 0.831};
  const int64_t head = std::min<int64_t>(depth, std::ssize(top1_accuracy) - 1);
  return top1_accuracy[head] * std::pow(static_cast<double>(rank + 1), -decay[head]);
}

}  // namespace clover::infer
