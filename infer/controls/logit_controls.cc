#include "infer/controls/logit_controls.h"

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_set>

#include "data/files/error.h"

namespace clover::infer {
namespace {

constexpr float banned = -std::numeric_limits<float>::infinity();

bool holds(const std::vector<int64_t>& ids, int64_t id) {
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

/// Ids from the root's first guess to `node`.
std::vector<int64_t> path_to(const CandidateTree& tree, int32_t node) {
  std::vector<int64_t> path(tree.depth[node]);
  for (size_t i = path.size(); i > 0; node = tree.parent[node]) path[--i] = tree.ids[node];
  return path;
}

}  // namespace

bool LogitControls::any() const {
  return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0 || no_repeat_ngram > 0 ||
         min_tokens > 0 || min_length > 0 || !bias.empty() || !suppressed.empty() ||
         !suppressed_first.empty() || !bad_words.empty();
}

void LogitControls::check(int64_t vocab) const {
  std::unordered_set<int64_t> out;  // of an answer's first token
  for (const auto& [id, value] : bias) check_id("logit_bias", id, vocab);
  const auto leave_out = [&](const char* name, int64_t id) {
    check_id(name, id, vocab);
    out.insert(id);
  };
  for (const int64_t id : suppressed) leave_out("suppress_tokens", id);
  for (const int64_t id : suppressed_first) leave_out("begin_suppress_tokens", id);
  for (const auto& word : bad_words)
    for (const int64_t id : word) check_id("bad_words_ids", id, vocab);
  for (const auto& word : bad_words)
    if (word.size() == 1) out.insert(word[0]);
  if (std::ssize(out) >= vocab) {
    throw data::InputError("suppress_tokens: expected to leave some of the " + std::to_string(vocab) +
                           " tokens, found that all of them are suppressed or bad words");
  }
}

/// Of one row, in the order they come; a ban stays.
class ControlledText::OwnEdits {
 public:
  explicit OwnEdits(std::vector<kernels::LogitEdit>& to) : to_(to), first_(to.size()) {}
  void put(const kernels::LogitEdit& edit) {
    const auto [at, fresh] = where_.try_emplace(edit.id, to_.size());
    if (fresh)
      to_.push_back(edit);
    else
      to_[at->second] = edit;
  }
  size_t first() const { return first_; }

 private:
  std::vector<kernels::LogitEdit>& to_;
  size_t first_;
  std::unordered_map<int64_t, size_t> where_;
};

ControlledText::ControlledText(std::shared_ptr<const LogitControls> controls, std::span<const int64_t> prompt,
                               const std::vector<int64_t>& end_ids)
    : controls_(std::move(controls)),
      end_ids_(&end_ids),
      text_(prompt.begin(), prompt.end()),
      prompt_length_(std::ssize(prompt)) {
  for (const auto& [id, value] : controls_->bias) bias_[id] = static_cast<float>(value);
  for (const int64_t id : controls_->suppressed) bias_[id] = banned;
  for (const std::vector<int64_t>& word : controls_->bad_words) {
    if (word.size() > 1)
      runs_.emplace(word[word.size() - 2], &word);
    else if (!holds(end_ids, word[0]))  // an answer can always end
      bias_[word[0]] = banned;
  }
  follows_text_ = penalises() || !runs_.empty() || controls_->no_repeat_ngram > 0 ||
                  controls_->min_tokens > 0 || controls_->min_length > 0;
  for (const auto& [id, value] : bias_) put(id, false, 0);
  if (controls_->repetition_penalty != 1)
    for (const int64_t id : prompt) put(id, true, 0);
}

bool ControlledText::penalises() const {
  return controls_->repetition_penalty != 1 || controls_->presence_penalty != 0 ||
         controls_->frequency_penalty != 0;
}

void ControlledText::append(int64_t token) {
  text_.push_back(token);
  if (penalises()) put(token, true, 1);
}

kernels::LogitEdit ControlledText::edit_of(int64_t id, bool in_text, int64_t answered) const {
  kernels::LogitEdit edit{.id = static_cast<int32_t>(id)};
  if (const auto bias = bias_.find(id); bias != bias_.end()) edit.bias = bias->second;
  if (in_text) edit.penalty = static_cast<float>(controls_->repetition_penalty);
  if (answered > 0) {
    edit.taken = static_cast<float>(controls_->frequency_penalty * static_cast<double>(answered) +
                                    controls_->presence_penalty);
  }
  return edit;
}

void ControlledText::put(int64_t id, bool in_text, int64_t more_answered) {
  const auto [at, fresh] = held_.try_emplace(id, Held{edits_.size()});
  if (fresh) edits_.emplace_back();
  Held& held = at->second;
  held.in_text |= in_text;
  held.answered += more_answered;
  edits_[held.edit] = edit_of(id, held.in_text, held.answered);
}

kernels::LogitEdit ControlledText::edit_behind(int64_t id, int64_t more) const {
  const auto held = held_.find(id);
  return edit_of(id, true, more + (held == held_.end() ? 0 : held->second.answered));
}

void ControlledText::add_edits(const CandidateTree& tree, int64_t first_row, LogitEdits& to) {
  const size_t begin = to.edits.size(), length = text_.size();
  to.edits.insert(to.edits.end(), edits_.begin(), edits_.end());
  const size_t end = to.edits.size();
  for (int32_t node = 0; node < tree.size(); ++node) {
    OwnEdits own(to.edits);
    if (follows_text_ || std::ssize(text_) == prompt_length_) {
      const std::vector<int64_t> path = path_to(tree, node);
      if (penalises())
        for (const int64_t id : path) own.put(edit_behind(id, std::ranges::count(path, id)));
      text_.insert(text_.end(), path.begin(), path.end());
      ban_behind(std::ssize(text_) - prompt_length_, own);
      text_.resize(length);
    }
    if (begin == end && own.first() == to.edits.size()) continue;
    const auto narrow = [](size_t number) { return static_cast<int32_t>(number); };
    to.rows.push_back(
        {narrow(first_row + node), narrow(begin), narrow(end), narrow(own.first()), narrow(to.edits.size())});
  }
}

/// What may not come behind text_, which has `answered` tokens of the answer.
void ControlledText::ban_behind(int64_t answered, OwnEdits& own) const {
  if (answered == 0)
    for (const int64_t id : controls_->suppressed_first) own.put(ban_of(id));
  if (answered < controls_->min_tokens || std::ssize(text_) < controls_->min_length)
    for (const int64_t id : *end_ids_) own.put(ban_of(id));
  if (text_.empty()) return;
  const auto [first, last] = runs_.equal_range(text_.back());
  for (auto run = first; run != last; ++run) {
    const std::vector<int64_t>& ids = *run->second;
    if (ids.size() - 1 <= text_.size() && std::equal(ids.rbegin() + 1, ids.rend(), text_.rbegin()))
      own.put(ban_of(ids.back()));
  }
  if (controls_->no_repeat_ngram > 0) ban_repeats(own);
}

/// What came behind each earlier place like the end of text_.
void ControlledText::ban_repeats(OwnEdits& own) const {
  const size_t before = static_cast<size_t>(controls_->no_repeat_ngram) - 1;
  if (text_.size() <= before) return;
  const auto end = text_.end() - static_cast<std::ptrdiff_t>(before);
  for (auto at = text_.begin(); at + static_cast<std::ptrdiff_t>(before) != text_.end(); ++at)
    if (std::equal(end, text_.end(), at)) own.put(ban_of(*(at + static_cast<std::ptrdiff_t>(before))));
}

}  // namespace clover::infer
