#include "infer/engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace clover::infer {
namespace {

// Pages that every decoding sequence is left for its next tokens when another joins; without them the
// newcomer would soon be sent away again.
constexpr int64_t pages_ahead = 2;

// Tokens of less than a page that are worth waiting a pass for; and how many tokens of another prompt are
// waited for, at most, for one that need not be read then.
constexpr int64_t worth_waiting = 16, most_wait = 2;

int64_t alike(std::span<const int64_t> one, std::span<const int64_t> other) {
  return std::ranges::mismatch(one, other).in1 - one.begin();
}

}  // namespace

std::vector<PromptChunk> Scheduler::next_chunks(int64_t most, std::span<const int64_t> decoding_rows) {
  for (;;) {
    std::vector<PromptChunk> chunks = chunks_in_order(most, missing_pages(decoding_rows));
    // Nobody would ever make room for the first one but those who joined behind it.
    if (!chunks.empty() || !decoding_.empty() || joining_.size() < 2) return chunks;
    send_last_away();
  }
}

std::vector<PromptChunk> Scheduler::chunks_in_order(int64_t most, int64_t taken) {
  std::vector<PromptChunk> chunks;
  for (size_t i = 0; most > 0; ++i) {
    if (i == joining_.size() && !admit()) break;
    if (is_left_to_another(i)) continue;
    Joining& next = joining_[i];
    const int32_t number = next.live->sequence();
    // Decoding may have taken since what was free when it was let in: then it waits where it is.
    const auto missing = [&] { return cache_.missing_pages(number, std::min(most, unread(next))); };
    const auto fits = [&] { return taken + missing() <= cache_.free_pages(); };
    if (!fits()) break;
    if (!std::exchange(next.begun, true)) take(next, cache_.copy_beginning(number, next.live->to_read()));
    if (!fits()) break;
    const int64_t all = unread(next), rows = std::min(most, all);
    if (rows == 0) continue;  // a pass that has begun reads its end
    taken += missing();
    chunks.push_back({next.live.get(), cache_.length(number), rows, rows == all});
    most -= rows;
  }
  return chunks;
}

bool Scheduler::admit() {
  if (waiting_.empty() || std::ssize(decoding_) + std::ssize(joining_) >= max_batch_) return false;
  LiveSequence& next = *waiting_.front();
  const int32_t number = cache_.open(std::ssize(next.request().prompt));
  const int64_t shared = cache_.share(number, next.to_read());
  const int64_t missing = cache_.missing_pages(number, std::ssize(next.to_read()) + 1 - shared);
  const bool alone = decoding_.empty() && joining_.empty();
  if (!alone && missing + soon_needed() > cache_.free_pages()) {
    cache_.close(number);
    return false;
  }
  next.join(number, shared);
  joining_.push_back({std::move(waiting_.front()), next.answered(), shared});
  waiting_.pop_front();
  return true;
}

void Scheduler::take(Joining& joining, int64_t held) {
  joining.shared = held;
  joining.live->join(joining.live->sequence(), held);
}

/// Takes what others have read by now; whether one before it in the queue will have read more of its
/// beginning soon.  For less than a page it waits once: those who each agree a little longer would be read
/// one by one.
bool Scheduler::is_left_to_another(size_t index) {
  Joining& one = joining_[index];
  if (one.begun) return false;
  const std::span<const int64_t> ids = one.live->to_read(), front = ids.first(ids.size() - 1);
  take(one, cache_.share(one.live->sequence(), ids));
  int64_t longest = 0;
  for (size_t i = 0; i < index; ++i) {
    const std::span<const int64_t> other = joining_[i].live->to_read();
    const int64_t both = alike(front, other.first(other.size() - 1));
    const int64_t in_pages = both / cache_.page_size() * cache_.page_size() - one.shared;
    if (in_pages > 0 && most_wait * in_pages >= unread(joining_[i])) return true;
    longest = std::max(longest, both);
  }
  const int64_t known = one.shared + cache_.beginning_known(one.live->sequence(), ids);
  return longest - 1 - known >= worth_waiting && !std::exchange(one.waited, true);
}

int64_t Scheduler::unread(const Joining& joining) const {
  return std::ssize(joining.live->to_read()) - cache_.length(joining.live->sequence());
}

int64_t Scheduler::soon_needed() const {
  int64_t pages = 0;
  const auto add = [&](const LiveSequence& live, int64_t unread) {
    const int64_t most = cache_.missing_pages(live.sequence(), unread + live.tokens_left() + 1);
    pages += std::min(most, cache_.missing_pages(live.sequence(), unread) + pages_ahead);
  };
  for (const auto& sequence : decoding_) add(*sequence, 0);
  for (const Joining& joining : joining_) add(*joining.live, unread(joining));
  return pages;
}

void Scheduler::joined(const LiveSequence& sequence) {
  const auto its = std::ranges::find(joining_, &sequence, [](const Joining& one) { return one.live.get(); });
  if (!its->returns) shared_tokens_ += its->shared;
  decoding_.push_back(std::move(its->live));
  joining_.erase(its);
}

void Scheduler::send_away(std::unique_ptr<LiveSequence> sequence) {
  cache_.close(sequence->sequence());
  sequence->leave();
  waiting_.push_front(std::move(sequence));
  ++sent_away_;
}

void Scheduler::send_last_away() {
  if (!joining_.empty()) {
    std::unique_ptr<LiveSequence> last = std::move(joining_.back().live);
    joining_.pop_back();
    return send_away(std::move(last));
  }
  std::unique_ptr<LiveSequence> last = std::move(decoding_.back());
  decoding_.pop_back();
  send_away(std::move(last));
}

void Scheduler::make_room() {
  while (!room_for(std::vector<int64_t>(decoding_.size(), 1))) send_last_away();
}

int64_t Scheduler::missing_pages(std::span<const int64_t> decoding_rows) const {
  int64_t missing = 0;
  for (size_t i = 0; i < decoding_rows.size(); ++i)
    missing += cache_.missing_pages(decoding_[i]->sequence(), decoding_rows[i]);
  return missing;
}

bool Scheduler::room_for(std::span<const int64_t> rows, std::span<const PromptChunk> chunks) const {
  int64_t missing = missing_pages(rows);
  for (const PromptChunk& chunk : chunks) missing += cache_.missing_pages(chunk.live->sequence(), chunk.rows);
  return missing <= cache_.free_pages();
}

std::vector<std::unique_ptr<LiveSequence>> Scheduler::take_finished() {
  std::vector<std::unique_ptr<LiveSequence>> finished;
  for (auto& sequence : decoding_) {
    if (!sequence->finished()) continue;
    cache_.close(sequence->sequence());
    finished.push_back(std::move(sequence));
  }
  std::erase(decoding_, nullptr);
  return finished;
}

}  // namespace clover::infer
