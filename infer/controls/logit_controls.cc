#include "infer/controls/logit_controls.h"

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_set>

#include "data/files/error.h"

namespace clover::infer {
namespace {

constexpr float banned = -std::numeric_limits<float>::infinity();

bool contains(const std::vector<int64_t>& ids, int64_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

kernels::LogitEdit ban_of(int64_t id) {
  return {static_cast<int32_t>(id), banned, 1, 0};
}

void check_id(const char* name, int64_t id, int64_t vocab) {
  if (id >= 0 && id < vocab) return;
  throw data::InputError(std::string(name) + ": expected token ids from 0 to " + std::to_string(vocab - 1) +
                         ", found " + std::to_string(id));
}

/// The token ids from the root, excluded, to `node`.
std::vector<int64_t> path_to(const CandidateTree& tree, int32_t node) {
  std::vector<int64_t> path(tree.depth[node]);
  for (size_t i = path.size(); i > 0; node = tree.parent[node]) path[--i] = tree.ids[node];
  return path;
}

}  // namespace

bool LogitControls::have_effect() const {
  return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0 || no_repeat_ngram > 0 ||
         min_tokens > 0 || min_length > 0 || !bias.empty() || !suppressed.empty() ||
         !suppressed_first.empty() || !bad_words.empty();
}

void LogitControls::check(int64_t vocab) const {
  std::unordered_set<int64_t> banned_first;  // tokens banned as the first of an answer
  for (const auto& [id, value] : bias) check_id("logit_bias", id, vocab);
  const auto ban_first = [&](const char* name, int64_t id) {
    check_id(name, id, vocab);
    banned_first.insert(id);
  };
  for (const int64_t id : suppressed) ban_first("suppress_tokens", id);
  for (const int64_t id : suppressed_first) ban_first("begin_suppress_tokens", id);
  for (const auto& word : bad_words)
    for (const int64_t id : word) check_id("bad_words_ids", id, vocab);
  for (const auto& word : bad_words)
    if (word.size() == 1) banned_first.insert(word[0]);
  if (std::ssize(banned_first) >= vocab) {
    throw data::InputError("suppress_tokens: expected to leave some of the " + std::to_string(vocab) +
                           " tokens, found that all of them are suppressed or bad words");
  }
}

/// Adds the edits of one row to those of the pass: at most one for each token.
class LogitEditor::NodeEdits {
 public:
  explicit NodeEdits(std::vector<kernels::LogitEdit>& pass_edits)
      : pass_edits_(pass_edits), first_(pass_edits.size()) {}
  /// Adds an edit, or replaces the one for the same token.
  void put(const kernels::LogitEdit& edit) {
    const auto [entry, inserted] = index_of_.try_emplace(edit.id, pass_edits_.size());
    if (inserted)
      pass_edits_.push_back(edit);
    else
      pass_edits_[entry->second] = edit;
  }
  /// Index of this row's first edit in the edits of the pass.
  size_t first() const { return first_; }

 private:
  std::vector<kernels::LogitEdit>& pass_edits_;
  size_t first_;
  std::unordered_map<int64_t, size_t> index_of_;  // in pass_edits_, by token id
};

LogitEditor::LogitEditor(std::shared_ptr<const LogitControls> controls, std::span<const int64_t> prompt,
                         const std::vector<int64_t>& end_ids)
    : controls_(std::move(controls)),
      end_ids_(&end_ids),
      text_(prompt.begin(), prompt.end()),
      prompt_length_(std::ssize(prompt)) {
  for (const auto& [id, value] : controls_->bias) bias_[id] = static_cast<float>(value);
  for (const int64_t id : controls_->suppressed) bias_[id] = banned;
  for (const std::vector<int64_t>& word : controls_->bad_words) {
    if (word.size() > 1)
      bad_words_.emplace(word[word.size() - 2], &word);
    else if (!contains(end_ids, word[0]))  // an answer must be able to end
      bias_[word[0]] = banned;
  }
  depends_on_text_ = has_penalties() || !bad_words_.empty() || controls_->no_repeat_ngram > 0 ||
                     controls_->min_tokens > 0 || controls_->min_length > 0;
  for (const auto& [id, value] : bias_) update_edit(id, false, 0);
  if (controls_->repetition_penalty != 1)
    for (const int64_t id : prompt) update_edit(id, true, 0);
}

bool LogitEditor::has_penalties() const {
  return controls_->repetition_penalty != 1 || controls_->presence_penalty != 0 ||
         controls_->frequency_penalty != 0;
}

void LogitEditor::append(int64_t token) {
  text_.push_back(token);
  if (has_penalties()) update_edit(token, true, 1);
}

/// The edit of a token: `in_text` says whether prompt or answer contain it.
kernels::LogitEdit LogitEditor::edit_of(int64_t id, bool in_text, int64_t times_in_answer) const {
  kernels::LogitEdit edit{.id = static_cast<int32_t>(id)};
  if (const auto bias = bias_.find(id); bias != bias_.end()) edit.bias = bias->second;
  if (in_text) edit.penalty = static_cast<float>(controls_->repetition_penalty);
  if (times_in_answer > 0) {
    edit.subtracted = static_cast<float>(controls_->frequency_penalty * static_cast<double>(times_in_answer) +
                                         controls_->presence_penalty);
  }
  return edit;
}

/// Notes that the text contains a token (more often), and renews its edit in edits_.
void LogitEditor::update_edit(int64_t id, bool in_text, int64_t more_times_in_answer) {
  const auto [entry, inserted] = edit_of_token_.try_emplace(id, TokenEdit{edits_.size()});
  if (inserted) edits_.emplace_back();
  TokenEdit& edit = entry->second;
  edit.in_text |= in_text;
  edit.times_in_answer += more_times_in_answer;
  edits_[edit.index] = edit_of(id, edit.in_text, edit.times_in_answer);
}

/// The edit of a token that occurs `times_on_path` times on the path to a node, besides those in the text.
kernels::LogitEdit LogitEditor::edit_on_path(int64_t id, int64_t times_on_path) const {
  const auto found = edit_of_token_.find(id);
  return edit_of(id, true,
                 times_on_path + (found == edit_of_token_.end() ? 0 : found->second.times_in_answer));
}

void LogitEditor::add_edits(const CandidateTree& tree, int64_t first_row, LogitEdits& pass_edits) {
  // The edits [begin, end) hold for all nodes; each node's own edits come after them.
  const size_t begin = pass_edits.edits.size(), length = text_.size();
  pass_edits.edits.insert(pass_edits.edits.end(), edits_.begin(), edits_.end());
  const size_t end = pass_edits.edits.size();
  for (int32_t node = 0; node < tree.size(); ++node) {
    NodeEdits node_edits(pass_edits.edits);
    if (depends_on_text_ || std::ssize(text_) == prompt_length_) {
      const std::vector<int64_t> path = path_to(tree, node);
      if (has_penalties())
        for (const int64_t id : path) node_edits.put(edit_on_path(id, std::ranges::count(path, id)));
      text_.insert(text_.end(), path.begin(), path.end());
      ban_after_text(std::ssize(text_) - prompt_length_, node_edits);
      text_.resize(length);
    }
    if (begin == end && node_edits.first() == pass_edits.edits.size()) continue;
    const auto narrow = [](size_t number) { return static_cast<int32_t>(number); };
    pass_edits.rows.push_back({narrow(first_row + node), narrow(begin), narrow(end),
                               narrow(node_edits.first()), narrow(pass_edits.edits.size())});
  }
}

/// Bans the tokens that may not follow text_, which ends with `answer_length` tokens of the answer.
void LogitEditor::ban_after_text(int64_t answer_length, NodeEdits& edits) const {
  if (answer_length == 0)
    for (const int64_t id : controls_->suppressed_first) edits.put(ban_of(id));
  if (answer_length < controls_->min_tokens || std::ssize(text_) < controls_->min_length)
    for (const int64_t id : *end_ids_) edits.put(ban_of(id));
  if (text_.empty()) return;
  const auto [first, last] = bad_words_.equal_range(text_.back());
  for (auto word = first; word != last; ++word) {
    const std::vector<int64_t>& ids = *word->second;
    if (ids.size() - 1 <= text_.size() && std::equal(ids.rbegin() + 1, ids.rend(), text_.rbegin()))
      edits.put(ban_of(ids.back()));
  }
  if (controls_->no_repeat_ngram > 0) ban_repeated_ngrams(edits);
}

/// Bans each token that would complete an n-gram that text_ already contains.
void LogitEditor::ban_repeated_ngrams(NodeEdits& edits) const {
  const size_t prefix_length =
      static_cast<size_t>(controls_->no_repeat_ngram) - 1;  // tokens before an n-gram's last
  if (text_.size() <= prefix_length) return;
  const auto end = text_.end() - static_cast<std::ptrdiff_t>(prefix_length);
  for (auto at = text_.begin(); at + static_cast<std::ptrdiff_t>(prefix_length) != text_.end(); ++at)
    if (std::equal(end, text_.end(), at))
      edits.put(ban_of(*(at + static_cast<std::ptrdiff_t>(prefix_length))));
}

}  // namespace clover::infer
